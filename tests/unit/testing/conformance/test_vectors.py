import gzip
import json
from pathlib import Path

import pytest

from nodewright.model.errors import Fault, InputError
from nodewright.testing.conformance.vectors import NOT_RECORDED, Vector, read_machines, read_vectors

GOOD = '{"id":"a","family":"quota","input":{"x":1,"tag":"as written"},"expect":null}'


def write_vectors(directory: Path, *lines: str, name: str = "v.jsonl") -> str:
    path = directory / name
    path.write_text("\n".join(lines), encoding="utf-8")
    return str(path)


def faults(path: str) -> list[str]:
    return [str(vector).replace(path, "FILE") for vector in read_vectors([path]) if isinstance(vector, Fault)]


def test_a_line_gives_a_vector_without_the_remark_for_readers(tmp_path: Path) -> None:
    (vector,) = read_vectors([write_vectors(tmp_path, GOOD)])
    assert vector == Vector("a", "quota", {"x": 1}, None)


def test_null_is_an_answer_and_absence_is_none(tmp_path: Path) -> None:
    question = '{"id":"b","family":"quota","input":{}}'
    vectors = list(read_vectors([write_vectors(tmp_path, GOOD, "", question)]))
    assert [vector.is_recorded for vector in vectors if isinstance(vector, Vector)] == [True, False]
    assert vectors[1] == Vector("b", "quota", {}, NOT_RECORDED)


def test_packed_files_are_read_as_plain_ones(tmp_path: Path) -> None:
    packed = tmp_path / "v.jsonl.gz"
    packed.write_bytes(gzip.compress(GOOD.encode()))
    assert list(read_vectors([str(packed)])) == list(read_vectors([write_vectors(tmp_path, GOOD)]))


@pytest.mark.parametrize(
    ("line", "fault"),
    [
        ("{", "FILE:2: not JSON: Expecting property name"),
        ("[" * 200_000, "FILE:2: not JSON: "),
        ("[]", "FILE:2: must be an object with id, family and input"),
        ('{"family":"quota","input":{}}', "FILE:2: id: must be there and be text"),
        ('{"id":1,"family":"quota","input":{}}', "FILE:2: id: Invalid value: 1: must be there and be text"),
        ('{"id":"b","family":null,"input":{}}', "FILE:2: family: must be there and be text"),
        (
            '{"id":"b","family":"quota","input":[]}',
            "FILE:2: input: Invalid value: []: must be there and be object",
        ),
        (GOOD, 'FILE:2: id: Invalid value: "a": id occurs twice, first at FILE:1'),
    ],
)
def test_a_bad_line_is_named_with_its_place(tmp_path: Path, line: str, fault: str) -> None:
    (each,) = faults(write_vectors(tmp_path, GOOD, line, GOOD.replace('"a"', '"c"')))
    assert each.startswith(fault)


def test_lines_after_a_bad_one_are_still_read(tmp_path: Path) -> None:
    path = write_vectors(tmp_path, "{", GOOD)
    assert [type(vector) for vector in read_vectors([path])] == [Fault, Vector]


def test_a_cut_file_is_named_where_it_ends(tmp_path: Path) -> None:
    packed = tmp_path / "cut.jsonl.gz"
    packed.write_bytes(gzip.compress(f"{GOOD}\n".encode())[:-6])
    assert [fault.split(": ", 1)[1][:26] for fault in faults(str(packed))] == ["cannot be read on from her"]


def test_a_file_that_is_no_text_is_named(tmp_path: Path) -> None:
    path = tmp_path / "binary.jsonl"
    path.write_bytes(b"\xff\xfe")
    assert len(faults(str(path))) == 1


def test_ids_are_unique_over_all_files(tmp_path: Path) -> None:
    paths = [write_vectors(tmp_path, GOOD), write_vectors(tmp_path, GOOD, name="w.jsonl")]
    assert [type(vector) for vector in read_vectors(paths)] == [Vector, Fault]


def test_the_package_includes_machines() -> None:
    assert len(read_machines()) == 44


def test_machines_of_a_file_are_read(tmp_path: Path) -> None:
    assert read_machines(write_vectors(tmp_path, json.dumps({"m": {"num_cores": 1}}))) == {
        "m": {"num_cores": 1}
    }


@pytest.mark.parametrize("text", ["{", "[]", '{"m": 1}'])
def test_a_file_of_other_things_holds_no_machines(tmp_path: Path, text: str) -> None:
    with pytest.raises(InputError):
        read_machines(write_vectors(tmp_path, text))
