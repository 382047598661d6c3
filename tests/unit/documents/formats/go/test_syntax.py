"""JSON as Go parses it, and Go's error messages."""

import json
from typing import Any

import pytest

from nodewright.documents.formats.go_json import GoJSONError, JSONNode, Members, NumberText, parse

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
