"""Go's JSON, and the text that is hashed for checksums."""

from typing import Any

import pytest

from nodewright.documents.formats.go_checkpoint import checksum, dump, marshal
from nodewright.documents.formats.go_json import (
    INT,
    STRING,
    ByteSlice,
    Field,
    MapOf,
    Pointer,
    SliceOf,
    Struct,
)

NODE = Struct("pkg.Node", (Field("Count", "count", INT),))
TOP = Struct(
    "pkg.Top",
    (
        Field("Nodes", "nodes", MapOf("map[int]*pkg.Node", INT, Pointer(NODE))),
        Field("Raw", "raw", ByteSlice()),
        Field("List", "list", SliceOf("[]string", STRING), omits_empty=True),
    ),
)


def test_json_is_one_line_with_keys_as_texts_in_order() -> None:
    value = {"Nodes": {2: {"Count": 1}, 10: None}, "Raw": b"hi", "List": []}
    assert marshal(value, TOP) == '{"nodes":{"10":null,"2":{"count":1}},"raw":"aGk="}'


def test_nil_is_null_unless_it_is_left_out() -> None:
    assert marshal({"Nodes": None, "Raw": None, "List": None}, TOP) == '{"nodes":null,"raw":null}'


@pytest.mark.parametrize(
    ("text", "json"),
    [
        ("<&>", r'"\u003c\u0026\u003e"'),
        ('"\\/', r'"\"\\/"'),
        ("\b\f\n\r\t\x01\x7f", '"\\b\\f\\n\\r\\t\\u0001\x7f"'),
        ("ä€\u2028", '"ä€\\u2028"'),
    ],
)
def test_texts_are_escaped_as_for_html(text: str, json: str) -> None:
    assert marshal(text, STRING) == json


def test_a_dump_names_types_of_fields_and_sorts_numbers_as_numbers() -> None:
    value: dict[str, Any] = {
        "Nodes": {10: {"Count": 1}, 2: {"Count": 3}},
        "Raw": b"\x00\xff",
        "List": ["b", "a"],
    }
    assert dump(value, TOP, is_pointer=True) == (
        "(*pkg.Top){Nodes:(map[int]*pkg.Node)map[2:<*>{Count:(int)3} 10:<*>{Count:(int)1}] "
        "Raw:([]uint8)[0 255] List:([]string)[b a]}"
    )


def test_a_nil_at_the_end_of_a_map_takes_the_type_from_the_next_field() -> None:
    value: dict[str, Any] = {"Nodes": {1: {"Count": 1}, 2: None}, "Raw": None, "List": []}
    assert dump(value, TOP) == (
        "(pkg.Top){Nodes:(map[int]*pkg.Node)map[1:<*>{Count:(int)1} 2:<nil>] Raw:<nil> List:([]string)[]}"
    )


@pytest.mark.parametrize(("text", "found"), [("a", 0xE40C292C), ("foobar", 0xBF9CF968)])
def test_the_checksum_is_fnv_1a(text: str, found: int) -> None:
    assert checksum(text) == found
