r"""Edits of fields in the text of files: minimal, and tried."""

import pytest

from nodewright.documents.formats.yaml_edits import NotEditableError, edited_text

EDITS = [
    # what, text, path, value, edited text
    ("a plain scalar", "a: 1  # why\n", "a", "5m", "a: 5m  # why\n"),
    ("a quoted scalar", "a: 'x'\n", "a", "y", 'a: "y"\n'),
    ("text that reads as a number", "a: b\n", "a", "6", 'a: "6"\n'),
    ("a boolean", "a: 1\n", "a", True, "a: true\n"),
    ("an empty value", "a:\nb: 1\n", "a", 2, "a: 2\nb: 1\n"),
    (
        "a key of a block",
        "a:\n  b: 1\n\n# end\nc: 2\n",
        "a[d]",
        "1Gi",
        "a:\n  b: 1\n  d: 1Gi\n\n# end\nc: 2\n",
    ),
    ("a key of a flow", "a: {b: 1}\n", "a[c]", 2, "a: {b: 1, c: 2}\n"),
    ("a key of an empty flow", "a: {}\n", "a[c]", 2, "a: {c: 2}\n"),
    (
        "missing parents",
        "a:\n- n: x\n",
        "a[0].r.limits[cpu]",
        "1",
        'a:\n- n: x\n  r:\n    limits:\n      cpu: "1"\n',
    ),
    ("missing parents in a flow", "a: [{n: x}]\n", "a[0].r.l[cpu]", 1, "a: [{n: x, r: {l: {cpu: 1}}}]\n"),
    ("below a null", "a:\n  r:\n", "a.r.cpu", 1, "a:\n  r: {cpu: 1}\n"),
    ("the last line without its end", "a: 1", "b", 2, "a: 1\nb: 2\n"),
    ("after a block scalar", "a:\n  t: |\n    x\nb: 1\n", "a.u", 1, "a:\n  t: |\n    x\n  u: 1\nb: 1\n"),
    ("lines that end as on Windows", "a:\r\n  b: 1\r\n", "a.c", 2, "a:\r\n  b: 1\r\n  c: 2\r\n"),
    ("JSON", '{"a": {"b": 1}}', "a[c]", "x", '{"a": {"b": 1, "c": "x"}}'),
    ("JSON values", '{"a": {"b": "1"}}', "a[b]", "2", '{"a": {"b": "2"}}'),
    ("removal of a line", "a: 1\n# kept\nb: 2\nc: 3\n", "b", None, "a: 1\n# kept\nc: 3\n"),
    ("removal of a block", "a: 1\nb:\n  c: 2\n  d: 3\ne: 4\n", "b", None, "a: 1\ne: 4\n"),
    ("removal of the only key", "a:\n  b:\n    c: 2\n", "a.b.c", None, "a:\n  b: {}\n"),
    ("removal of the first key of an item", "- b: 1\n  c: 2\n", "[0].b", None, "- c: 2\n"),
    ("removal in a flow", "a: {b: 1, c: 2}\n", "a.c", None, "a: {b: 1}\n"),
    ("removal of the first in a flow", "a: {b: 1, c: 2}\n", "a.b", None, "a: {c: 2}\n"),
    ("removal of all in a flow", "a: {b: 1}\n", "a.b", None, "a: {}\n"),
    ("letters of two units", "a: \U0001f600 # x\nb: 1\n", "b", 2, "a: \U0001f600 # x\nb: 2\n"),
]


@pytest.mark.parametrize(
    ("text", "path", "value", "edited"), [case[1:] for case in EDITS], ids=[case[0] for case in EDITS]
)
def test_an_edit_changes_its_field_alone(text: str, path: str, value: object, edited: str) -> None:
    assert edited_text(text, 1, path, value) == edited


def test_another_document_stays() -> None:
    assert edited_text("a: 1\n---\na: 1\n", 2, "a", 2) == "a: 1\n---\na: 2\n"


@pytest.mark.parametrize(
    ("text", "path", "value"),
    [
        ("a: &x {b: 1}\nc: *x\n", "a.b", 2),  # c would change as well
        ("a: &x {b: 1}\nc: *x\n", "c.b", 2),
        ("x: &x {b: 1}\nc:\n  <<: *x\n  d: 1\n", "x.b", 2),
        ("a: |\n  text\n", "a", "x"),
        ("a: [1]\n", "a", 2),
        ("a: [1]\n", "a[3]", 2),
        ("a: 1\n", "b", None),
        ("a: 1\n", "a", None),
        ("a: 1\x85b: 1\n", "a", 2),
        ("a: 1\n", "a.b", 2),
    ],
)
def test_what_cannot_be_edited_in_one_place_is_refused(text: str, path: str, value: object) -> None:
    with pytest.raises(NotEditableError):
        edited_text(text, 1, path, value)
