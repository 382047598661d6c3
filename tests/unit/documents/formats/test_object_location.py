import pytest

from nodewright.documents.formats.object_location import ObjectLocation
from nodewright.model.errors import Fault

TEXT = b"""# two documents
a:
  b: [1, {c: 2}]
  nvidia.com/gpu: 1
---
items:
- spec:
    x: 1
- ? [1]
  : 2
"""

PLACES = [
    (1, "", "a", "f:2:1"),
    (1, "", "a.b", "f:3:3"),
    (1, "", "a.b[0]", "f:3:7"),
    (1, "", "a.b[1].c", "f:3:11"),
    (1, "", "a[nvidia.com/gpu]", "f:4:3"),
    (1, "", "a.missing.far", "f:2:1"),
    (1, "", "", "f:2:1"),
    (2, "items[0]", "spec.x", "f:8:5"),
    (2, "items[1]", "", "f:9:3"),
    (3, "", "a", "f, document 3"),
]


@pytest.mark.parametrize(("document", "prefix", "path", "place"), PLACES)
def test_the_position_is_that_of_the_field_or_its_nearest_parent(
    document: int, prefix: str, path: str, place: str
) -> None:
    fault = ObjectLocation("f", TEXT, document, documents=3, prefix=prefix).locate(Fault(rule="r", path=path))
    assert fault.source == place


def test_faults_in_json_have_positions_too() -> None:
    place = ObjectLocation("f", b'{"a": {\n  "b": 1}}', 1, documents=1, label="Pod default/web")
    assert str(place.locate(Fault(rule="is wrong", path="a.b"))) == "f:2:3, Pod default/web: a.b: is wrong"


@pytest.mark.parametrize("content", [b'{"a": 1}\n{"b": 1}', b"\xff", b'{"a": "' + b"x" * 4_000_000 + b'"}'])
def test_without_a_line_the_object_is_named(content: bytes) -> None:
    place = ObjectLocation("f", content, 1, documents=1, prefix="items[3]", label="Pod web")
    assert place.locate(Fault(rule="is wrong", path="a")).source == "f, items[3], Pod web"


def test_faults_come_in_the_order_of_the_text_and_once() -> None:
    faults = [Fault(rule="late", path="a.b"), Fault(rule="early", path="a"), Fault(rule="late", path="a.b")]
    placed = ObjectLocation("f", TEXT, 1, documents=2).locate_all(faults)
    assert [fault.rule for fault in placed] == ["early", "late"]
