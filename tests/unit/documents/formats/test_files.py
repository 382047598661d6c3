import io
from pathlib import Path

import pytest

from nodewright.documents.formats.documents import InputFile, named_files, read_file
from nodewright.model.errors import InputError


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
