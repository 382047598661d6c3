"""JSON decoded into Go's structs: valid values, type mismatches, and fields that keep their value."""

from typing import Any

import pytest

from nodewright.documents.formats.go_json import (
    INT,
    STRING,
    UINT64,
    ByteSlice,
    Converted,
    Field,
    GoJSONError,
    MapOf,
    Pointer,
    SliceOf,
    Struct,
    unmarshal,
    zero_value,
)


def shouted(json: dict[str, Any]) -> dict[str, Any]:
    if not json["Text"].isalpha():
        raise GoJSONError("not a word")
    return {"Text": json["Text"].upper()}


WORD = Struct("pkg.word", (Field("Text", "text", STRING),))
NODE = Struct("pkg.Node", (Field("Count", "count", INT), Field("Cells", "cells", SliceOf("[]int", INT))))
TOP = Struct(
    "pkg.Top",
    (
        Field("Name", "name", STRING),
        Field("Size", "size", UINT64),
        Field("Raw", "raw", ByteSlice()),
        Field("Nodes", "nodes", MapOf("map[int]*pkg.Node", INT, Pointer(NODE))),
        Field("List", "list", SliceOf("[]pkg.Node", NODE)),
        Field("Words", "words", MapOf("map[string]pkg.Word", STRING, Converted(WORD, WORD, shouted, dict))),
    ),
)
EMPTY = zero_value(TOP)


def read(text: str, before: dict[str, Any] | None = None) -> tuple[str | None, dict[str, Any]]:
    into = {**zero_value(TOP), **(before or {})}
    error = unmarshal(text.encode(), TOP, into)
    return error, {name: value for name, value in into.items() if value != EMPTY[name]}


FITS = [
    ('{"NAME": "a", "\u017fize": 18446744073709551615}', {"Name": "a", "Size": 2**64 - 1}),
    ('{"name": "a", "name": null, "other": {"name": 1}}', {"Name": "a"}),
    ('{"raw": "aGk=\\n", "list": null}', {"Raw": b"hi"}),
    ('{"raw": [104, 105]}', {"Raw": b"hi"}),
    ('{"raw": ""}', {"Raw": b""}),
    ('{"nodes": {"+1": {"count": -1}, "1": {"cells": [2]}, "0": null}}',
     {"Nodes": {1: {"Count": 0, "Cells": [2]}, 0: None}}),
    ('{"nodes": {"1": null}, "nodes": {"2": {}}}', {"Nodes": {1: None, 2: {"Count": 0, "Cells": None}}}),
    ('{"list": [{"count": 1}, {}], "list": [{"cells": []}]}', {"List": [{"Count": 1, "Cells": []}]}),
    ('{"words": {"a": {"text": "hi"}}}', {"Words": {"a": {"Text": "HI"}}}),
]  # fmt: skip


@pytest.mark.parametrize(("text", "found"), FITS)
def test_values_fall_into_their_fields(text: str, found: dict[str, Any]) -> None:
    assert read(text) == (None, found)


FIELD = "json: cannot unmarshal {} into Go struct field {} of type {}"
MISFITS = [
    ("[]", "json: cannot unmarshal array into Go value of type pkg.Top"),
    ('{"name": 1}', FIELD.format("number", "Top.name", "string")),
    ('{"name": [], "size": -1}', FIELD.format("array", "Top.name", "string")),
    ('{"size": true}', FIELD.format("bool", "Top.size", "uint64")),
    ('{"size": 1.5}', FIELD.format("number 1.5", "Top.size", "uint64")),
    ('{"size": 18446744073709551616}', FIELD.format("number 18446744073709551616", "Top.size", "uint64")),
    ('{"nodes": {"1": {"count": 1e3}}}', FIELD.format("number 1e3", "Node.nodes.count", "int")),
    ('{"nodes": {"a": null}}', FIELD.format("number a", "Top.nodes", "int")),
    ('{"nodes": {"1": "x"}}', FIELD.format("string", "Top.nodes", "pkg.Node")),
    ('{"nodes": []}', FIELD.format("array", "Top.nodes", "map[int]*pkg.Node")),
    ('{"list": {}}', FIELD.format("object", "Top.list", "[]pkg.Node")),
    ('{"list": [{"cells": [{}]}]}', FIELD.format("object", "Node.list.cells", "int")),
    ('{"raw": [256]}', FIELD.format("number 256", "Top.raw", "uint8")),
    ('{"raw": "aGk"}', "illegal base64 data at input byte 0"),
    ('{"raw": "aGkx!"}', "illegal base64 data at input byte 4"),
    ('{"raw": "=="}', "illegal base64 data at input byte 0"),
    ('{"raw": "aG=\\n"}', "illegal base64 data at input byte 4"),
    ('{"raw": "aG=x"}', "illegal base64 data at input byte 2"),
    ('{"raw": "aGk=\\r\\nA"}', "illegal base64 data at input byte 6"),
    ('{"words": {"a": {"text": "1"}}, "name": 1}', "not a word"),
    ('{"name": 1, "words": {"a": {"text": 1}}}', FIELD.format("number", "word.text", "string")),
]  # fmt: skip


@pytest.mark.parametrize(("text", "error"), MISFITS)
def test_a_type_mismatch_has_gos_message(text: str, error: str) -> None:
    assert read(text)[0] == error


def test_decoding_continues_after_a_type_mismatch() -> None:
    _, found = read('{"name": 1, "nodes": {"x": {}, "1": 5}, "size": 3}')
    assert found == {"Nodes": {1: {"Count": 0, "Cells": None}}, "Size": 3}


def test_nothing_is_read_after_a_value_that_cannot_be_converted() -> None:
    _, found = read('{"words": {"a": {"text": "hi"}, "b": {"text": ""}}, "size": 3}')
    assert found == {"Words": {"a": {"Text": "HI"}}}


def test_absent_fields_keep_their_value() -> None:
    before = {"Name": "old", "Nodes": {7: None}}
    assert read('{"nodes": {"8": null}}', before) == (None, {"Name": "old", "Nodes": {7: None, 8: None}})
