"""Files and documents: what is read by name, and parsed."""

import io
from pathlib import Path

import pytest

from nodewright.documents.formats import documents
from nodewright.documents.formats.documents import InputFile, named_files, parse_documents, read_file
from nodewright.model.errors import InputError


def values(content: bytes) -> list[object]:
    return [document.value for document in parse_documents(content, "f")]


def refusal(content: bytes, max_bytes: int = 1000) -> list[str]:
    with pytest.raises(InputError) as refused:
        parse_documents(content, "f", max_bytes=max_bytes)
    return [str(fault) for fault in refused.value.faults]


TAKEN = [
    (b'{"a": 1}', [{"a": 1}]),
    (b' \n{"a": 1}\n{"b": 2.0} {"c": 1e3}', [{"a": 1}, {"b": 2}, {"c": 1000}]),
    (b"{a: yes}", [{"a": True}]),
    (b'{"a": 1}\n---\nb: 2', [{"a": 1}, {"b": 2}]),
    (b'{"a": "\\ud83d\\ude00", "b": "\\ud83d"}', [{"a": "\U0001f600", "b": "\ufffd"}]),
    (b'{"a": [{"\\udc00": ["\\ud800", 1]}]}', [{"a": [{"\ufffd": ["\ufffd", 1]}]}]),
    ("\ufeffa: \u00e4".encode(), [{"a": "\u00e4"}]),
    ("a: \u00e4".encode("utf-16"), [{"a": "\u00e4"}]),
    (b"\xfe\xff" + "a: 1".encode("utf-16-be"), [{"a": 1}]),
    ('{"a": "\u00e4"}'.encode("utf-32"), [{"a": "\u00e4"}]),
    (b"\x00\x00\xfe\xff" + "a: 1".encode("utf-32-be"), [{"a": 1}]),
    (b"", []),
    (b" \n  ", []),
]


@pytest.mark.parametrize(("content", "documents"), TAKEN)
def test_bytes_are_read_as_json_or_yaml_in_any_encoding(content: bytes, documents: list[object]) -> None:
    assert values(content) == documents


REFUSED = [
    (b"a: \xff", ["f: not valid UTF-8: invalid start byte at byte 3"]),
    (b"\xff\xfea", ["f: not valid UTF-16-LE: truncated data at byte 2"]),
    (b'{"a": 1, "b": {"c": 1, "c": 2}, "a": 3}',
     ['f:1:24: Invalid value: "c": the key "c" is given twice',
      'f:1:33: Invalid value: "a": the key "a" is given twice']),
    (b'{"a": 1,\t"a": "\\/"}\n{"b": 1}', ['f: Invalid value: "a": the key "a" is given twice']),
    (b'{"a": Infinity, "b": NaN, ', ["f:2:1: while parsing a flow node, did not find expected node content"]),
    (b'{"a": ' + b"9" * 5000 + b"}", ["f: a number has too many digits"]),
    (b'{"a": ' * 200 + b"1" + b"}" * 200, ["f: nested more than 128 levels deep"]),
    (b'{"a": ' * 100_000, ["f: nested more than 128 levels deep"]),
    (b"[" * 200_000, ["f: 200000 bytes of YAML exceed the limit of 1000 (JSON may be larger)"]),
]  # fmt: skip


@pytest.mark.parametrize(("content", "faults"), REFUSED)
def test_unreadable_text_is_rejected_with_its_position(content: bytes, faults: list[str]) -> None:
    assert refusal(content) == faults


def test_a_json_list_may_be_larger_than_any_yaml() -> None:
    content = b'{"items": [' + b'"x",' * 1000 + b'"x"]}'
    (document,) = parse_documents(content, "f", max_bytes=1000)
    assert len(document.value["items"]) == 1001


@pytest.mark.parametrize(
    ("content", "fault"),
    [
        (
            b'{"a": "' + b"x" * 2000 + b'", b}',
            "f:1:2011: not valid JSON: Expecting property name enclosed in double quotes",
        ),
        (b'{"a": -Infinity' + b" " * 2000 + b"}", "f: not valid JSON: -Infinity is not a JSON value"),
    ],
)
def test_large_broken_json_is_not_tried_as_yaml(content: bytes, fault: str) -> None:
    assert refusal(content) == [fault]


@pytest.mark.parametrize("limit", [0, documents.LARGE_BYTES])
def test_a_number_beyond_floats_is_a_fault_of_json_and_no_reason_to_read_it_as_yaml(
    limit: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(documents, "LARGE_BYTES", limit)
    content = b'{"apiVersion": 0.0, "items": [{"a": 2.0}, {"a": -1e999}]}'
    with pytest.raises(InputError) as caught:
        list(parse_documents(content, "f", item_by_item=True)[0].value["items"])
    assert [str(fault) for fault in caught.value.faults] == [
        'f: Invalid value: "-1e999": the number is too large'
    ]
    (flow_mapping,) = parse_documents(b'{"a": 1e999, b: 2.0}', "f")
    assert flow_mapping.value == {"a": "1e999", "b": 2}


def test_a_directory_stands_for_its_manifests_by_name(tmp_path: Path) -> None:
    for name in ("b.yaml", "a.yml", "c.json", "notes.txt", "d.YAML"):
        (tmp_path / name).touch()
    (tmp_path / "deeper").mkdir()
    (tmp_path / "deeper" / "e.yaml").touch()
    (tmp_path / "folder.yaml").mkdir()
    names = [Path(path).name for path in named_files([str(tmp_path)])]
    assert names == ["a.yml", "b.yaml", "c.json"]
    names = [Path(path).name for path in named_files([str(tmp_path)], recursive=True)]
    assert names == ["a.yml", "b.yaml", "c.json", "e.yaml"]


def test_a_file_counts_whatever_its_ending(tmp_path: Path) -> None:
    path = tmp_path / "manifest"
    path.write_bytes(b"a: 1")
    assert named_files([str(path), "-"]) == [str(path), "-"]
    assert read_file(str(path)).content == b"a: 1"


def test_all_invalid_paths_are_reported_at_once(tmp_path: Path) -> None:
    with pytest.raises(InputError) as refused:
        named_files(["absent.yaml", str(tmp_path), "gone"])
    assert [str(fault) for fault in refused.value.faults] == [
        'the path "absent.yaml" does not exist',
        f"{tmp_path}: no files that end in one of .json .yaml .yml",
        'the path "gone" does not exist',
    ]


def test_an_unreadable_log_is_an_error_with_the_reason(tmp_path: Path) -> None:
    with pytest.raises(InputError, match="cannot be read: Is a directory"):
        read_file(str(tmp_path))


def test_standard_input_is_read_as_bytes(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("sys.stdin", io.TextIOWrapper(io.BytesIO(b"\xffa")))
    assert read_file("-") == InputFile("stdin", b"\xffa")


def test_an_endless_file_is_read_only_up_to_the_limit(tmp_path: Path) -> None:
    with pytest.raises(InputError, match=r"^/dev/zero: more than 1000 bytes of YAML, which is the limit"):
        read_file("/dev/zero", max_bytes=1000)
    path = tmp_path / "list.json"
    for content in (b'\n {"items": []}', '\ufeff{"items": []}'.encode("utf-16-le")):
        path.write_bytes(content)
        assert read_file(str(path), max_bytes=1).content == content
