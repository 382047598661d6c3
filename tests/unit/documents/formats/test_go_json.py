"""JSON as Go parses it and decodes it into structs, and Go's error messages."""

import json
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
    JSONNode,
    MapOf,
    Members,
    NumberText,
    Pointer,
    SliceOf,
    Struct,
    parse,
    unmarshal,
    zero_value,
)

REFUSED = {
    b"": "unexpected end of JSON input",
    b" \n": "unexpected end of JSON input",
    b"{": "unexpected end of JSON input",
    b'{"a"': "unexpected end of JSON input",
    b'{"a":1': "unexpected end of JSON input",
    b"[1,": "unexpected end of JSON input",
    b'"abc': "unexpected end of JSON input",
    b'{"a":"\\u00': "invalid character ' ' in \\u hexadecimal character escape",
    b'{"a":"\\': "invalid character ' ' in string escape code",
    b'{"a":-': "invalid character ' ' in numeric literal",
    b'{"a":1.': "invalid character ' ' after decimal point in numeric literal",
    b'{"a":1e': "invalid character ' ' in exponent of numeric literal",
    b'{"a":tru': "invalid character ' ' in literal true (expecting 'e')",
    b'{"a" 1}': "invalid character '1' after object key",
    b'{"a":1 "b"': "invalid character '\"' after object key:value pair",
    b"{'a'": r"invalid character '\'' looking for beginning of object key string",
    b'{"a":1,}': "invalid character '}' looking for beginning of object key string",
    b"[1,]": "invalid character ']' looking for beginning of value",
    b"[1 2]": "invalid character '2' after array element",
    b"01": "invalid character '1' after top-level value",
    b"[01]": "invalid character '1' after array element",
    b"{} x": "invalid character 'x' after top-level value",
    b"-x": "invalid character 'x' in numeric literal",
    b"1.x": "invalid character 'x' after decimal point in numeric literal",
    b"1e+x": "invalid character 'x' in exponent of numeric literal",
    b"nul1": "invalid character '1' in literal null (expecting 'l')",
    b"fAlse": "invalid character 'A' in literal false (expecting 'a')",
    b'"a\nb"': r"invalid character '\n' in string literal",
    b'"\x00"': r"invalid character '\x00' in string literal",
    b'"\\x"': "invalid character 'x' in string escape code",
    b'"\\u00g0"': "invalid character 'g' in \\u hexadecimal character escape",
    b"\xef\xbb\xbf{}": "invalid character 'ï' looking for beginning of value",
    b"\x80": r"invalid character '\u0080' looking for beginning of value",
    b"NaN": "invalid character 'N' looking for beginning of value",
    b"[" * 10_001: "invalid character '[' exceeded max depth",
}


@pytest.mark.parametrize(("data", "error"), REFUSED.items(), ids=lambda each: repr(each[:12]))
def test_broken_texts_have_gos_error_messages(data: bytes, error: str) -> None:
    with pytest.raises(GoJSONError) as raised:
        parse(data)
    assert str(raised.value) == error


READ: dict[bytes, JSONNode] = {
    b' {"b": [1.50, -0, 1E+2], "a": {}, "b": []} ': Members(
        [
            ("b", [NumberText("1.50"), NumberText("-0"), NumberText("1E+2")]),
            ("a", Members([])),
            ("b", []),
        ]
    ),
    b'["\\u00e4\\n\\"\\/", "\\ud83d\\ude00", "\\ud83d", "\\ude00x"]': ['ä\n"/', "😀", "\ufffd", "\ufffdx"],
    b'["\xe2\x82\xac", "\xe2\x82", "\xff\\ud800"]': ["€", "\ufffd\ufffd", "\ufffd\ufffd"],
    b'[true, false, null, "\x7f"]': [True, False, None, "\x7f"],
}


@pytest.mark.parametrize(("data", "node"), READ.items(), ids=lambda each: repr(each)[:20])
def test_texts_become_what_they_stand_for(data: bytes, node: JSONNode) -> None:
    assert parse(data) == node


def test_nesting_up_to_gos_limit_does_not_recurse() -> None:
    node: Any = parse(b"[" * 10_000 + b"]" * 10_000)
    depth = 0
    while node:
        (node,), depth = node, depth + 1
    assert depth == 9_999


def test_what_python_reads_is_read_alike() -> None:
    def plain(node: JSONNode) -> Any:
        if isinstance(node, Members):
            return {name: plain(value) for name, value in node.pairs}
        if isinstance(node, list):
            return [plain(each) for each in node]
        return float(node.text) if isinstance(node, NumberText) else node

    text = '{"a": [1, 2.5e3, {"b": "\\u0041", "c": [[], {}, true]}], "d": null, "": {"e": "x\\ty"}}'
    assert plain(parse(text.encode())) == json.loads(text)


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
