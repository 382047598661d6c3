""""""

import json

import pytest

from nodewright.documents.formats.kubectl_yaml import (
    NotJSONValueError,
    key_text,
    number_text,
    read_documents,
    read_yaml,
    resolve,
)
from nodewright.model.errors import InputError


def refusal(text: str) -> list[str]:
    with pytest.raises(InputError) as refused:
        read_yaml(text, "f")
    return [str(fault) for fault in refused.value.faults]


@pytest.mark.parametrize("opening", ["[", "{", "- ", "? ", "{a: "])
def test_deep_nesting_is_an_error_and_not_a_crash(opening: str) -> None:
    (fault,) = refusal(opening * 200_000)
    assert fault.endswith("nested more than 128 levels deep")


def test_nesting_of_128_levels_is_accepted() -> None:
    assert str(read_yaml("[" * 128 + "]" * 128, "f")) == "[" * 129 + "]" * 129
    assert refusal("[" * 129 + "]" * 129) == ["f:1:129: nested more than 128 levels deep"]


def test_excessive_aliases_are_rejected() -> None:
    levels = [f"l{n}: &l{n} [{', '.join([f'*l{n - 1}'] * 9)}]" for n in range(1, 10)]
    (fault,) = refusal("\n".join(["l0: &l0 [x, x, x, x, x, x, x, x, x]", *levels]))
    assert fault.endswith("document contains excessive aliasing")


def test_ordinary_aliases_are_accepted_in_any_number() -> None:
    text = "a: &a {cpu: 1, memory: 2}\n" + "".join(f"k{number}: *a\n" for number in range(90))
    (value,) = read_yaml(text, "f")
    assert value["k89"] == {"cpu": 1, "memory": 2}


REFUSED = [
    ("a: 1\nb: {c: 1, c: 2}\na: 2\n", ['f:2:11: Invalid value: "c": the key "c" is given twice',
                                        'f:3:1: Invalid value: "a": the key "a" is given twice']),
    ('1: a\n"1": b\n', ['f:2:1: Invalid value: "1": the key "1" is given twice']),
    ("x: &a [1, *a]", ["f:1:11: anchor 'a' value contains itself"]),
    ("x: *a", ["f:1:4: unknown anchor 'a' referenced"]),
    ("a: &a 1\n---\nb: *a", ["f:3:4: unknown anchor 'a' referenced"]),
    ("? [a]\n: b", ["f:1:3: a key is a string, not a list or mapping"]),
    ("~: b", ["f:1:1: a key is a string, not null"]),
    ("a: .inf\nb: .nan", ['f:1:4: Invalid value: ".inf": .inf is not a JSON value',
                          'f:2:4: Invalid value: ".nan": .nan is not a JSON value']),
    ("a: !!int x", ["f:1:4: cannot decode !!str `x` as a !!int"]),
    ("a: !!bool 1", ["f:1:4: cannot decode !!int `1` as a !!bool"]),
    ("a: !!binary '*'", ["f:1:4: !!binary value contains invalid base64 data"]),
    ("a: {<<: 1}", ["f:1:9: map merge requires map or sequence of maps as the value"]),
    ("a: [1", ["f:2:1: while parsing a flow sequence, did not find expected ',' or ']'"]),
    ("a:\n\tb: 1", ["f:2:1: while scanning for the next token, found character that cannot start any token: indent with spaces, YAML forbids tabs"]),
    ("a: b: c", ["f:1:5: mapping values are not allowed in this context"]),
    ("a: \x00", ["f: the character U+0000 at offset 3 is not allowed in YAML"]),
    ("a: 1\na: 2\n[", ['f:2:1: Invalid value: "a": the key "a" is given twice',
                      "f:4:1: while scanning a simple key, could not find expected ':'"]),
    ("\ud800", ["f: not valid text: '\\ud800' at offset 0 is not a character"]),
]  # fmt: skip


@pytest.mark.parametrize(("text", "faults"), REFUSED)
def test_each_fault_names_its_place_and_its_rule(text: str, faults: list[str]) -> None:
    assert refusal(text) == faults


def test_the_number_of_reported_faults_is_limited() -> None:
    assert len(refusal("".join("a: 1\n" for _ in range(1000)))) == 50


def test_a_text_that_is_too_large_is_refused_before_it_is_read() -> None:
    with pytest.raises(InputError, match="11 bytes of YAML exceed the limit of 10"):
        read_yaml("a: ['" * 2 + "]", "f", max_bytes=10)


TAKEN = [
    ("", []),
    ("# nothing", []),
    ("---\n---\n# still nothing\n", []),
    ("\ufeffa: 1", [{"a": 1}]),
    ("a: 1\n---\nb: 2\n...\n---\nc: 3", [{"a": 1}, {"b": 2}, {"c": 3}]),
    ("a: \"yes\"\nb: !!str 1\nc: '~'", [{"a": "yes", "b": "1", "c": "~"}]),
    ("a: |\n  ---\n  text\n", [{"a": "---\ntext\n"}]),
    ("a: !!float 1\nb: !custom 1\nc: ! 1", [{"a": 1, "b": "1", "c": "1"}]),
    ("a: !!binary aGVsbG8=", [{"a": "hello"}]),
    ("a: &x {b: 1, c: 1}\nd: {<<: *x, c: 2}", [{"a": {"b": 1, "c": 1}, "d": {"b": 1, "c": 2}}]),
    ("a: {c: 2, <<: {c: 1}}", [{"a": {"c": 1}}]),
    ("a: {<<: [{b: 1}, {b: 2, c: 2}]}", [{"a": {"b": 1, "c": 2}}]),
    ('a: {"<<": 1}', [{"a": {"<<": 1}}]),
    ("on: 1\n8080: 2\n1.5: 3", [{"true": 1, "8080": 2, "1.5": 3}]),
    ("? &k name\n: *k", [{"name": "name"}]),
    ('{"a": ["b", 1.5, true, null]}', [{"a": ["b", 1.5, True, None]}]),
]


@pytest.mark.parametrize(("text", "documents"), TAKEN)
def test_documents_are_read(text: str, documents: list[object]) -> None:
    assert read_yaml(text, "f") == documents


def test_documents_know_their_number_and_line() -> None:
    documents = read_documents("# a file\n---\n---\na: 1\n---\nb: 2\n", "f")
    assert [(document.number, document.line) for document in documents] == [(2, 3), (3, 5)]


# What a plain scalar stands for, as `kubectl create --dry-run=client -o json` shows it.
SCALARS = """
    y                     -> true
    Y                     -> true
    yes                   -> true
    YES                   -> true
    on                    -> true
    On                    -> true
    true                  -> true
    yEs                   -> "yEs"
    n                     -> false
    No                    -> false
    off                   -> false
    FALSE                 -> false
    ~                     -> null
    null                  -> null
    Null                  -> null
    nULL                  -> "nULL"
    0                     -> 0
    -0                    -> 0
    +12                   -> 12
    0755                  -> 493
    0o17                  -> 15
    0O17                  -> 15
    0b11                  -> 3
    -0b11                 -> -3
    0x1F                  -> 31
    0X1f                  -> 31
    1_000                 -> 1000
    0x_ff                 -> 255
    1__0_                 -> 10
    _1                    -> "_1"
    08                    -> 8
    0b                    -> "0b"
    0b12                  -> "0b12"
    0x                    -> "0x"
    1e3                   -> 1000
    1E3                   -> 1000
    1.0                   -> 1
    1.                    -> 1
    .5                    -> 0.5
    +.5                   -> 0.5
    1.5e-3                -> 0.0015
    1e400                 -> "1e400"
    1e21                  -> 1e+21
    .                     -> "."
    ...x                  -> "...x"
    1.2.3                 -> "1.2.3"
    1e                    -> "1e"
    -                     -> "-"
    +                     -> "+"
    -x                    -> "-x"
    2026-01-31            -> "2026-01-31"
    2026-01-31T12:00:00Z  -> "2026-01-31T12:00:00Z"
    22:22                 -> "22:22"
    190:20:30             -> "190:20:30"
    1Gi                   -> "1Gi"
    250m                  -> "250m"
    9223372036854775807   -> 9223372036854775807
    -9223372036854775808  -> -9223372036854775808
    18446744073709551615  -> 18446744073709551615
    18446744073709551616  -> 18446744073709552000
    0x10000000000000000   -> "0x10000000000000000"
    -0x8000000000000000   -> -9223372036854775808
"""


@pytest.mark.parametrize("line", SCALARS.strip().splitlines())
def test_plain_scalars_resolve_as_in_kubectl(line: str) -> None:
    text, _, wanted = (part.strip() for part in line.partition("->"))
    value = resolve(text)
    expected = json.loads(wanted)
    assert value == expected
    assert type(value) is type(expected)


@pytest.mark.parametrize("text", [".inf", "+.Inf", "-.INF", ".nan", ".NaN"])
def test_what_json_cannot_hold_is_refused(text: str) -> None:
    with pytest.raises(NotJSONValueError, match="is not a JSON value"):
        resolve(text)


def test_keys_become_text() -> None:
    keys: tuple[object, ...] = (True, False, 80, 1.5, "name", None, [], {})
    assert [key_text(key) for key in keys] == ["true", "false", "80", "1.5", "name", None, None, None]


NUMBERS = [
    (1, "1"),
    (0.5, "0.5"),
    (0.0001, "0.0001"),
    (0.00001, "0.00001"),
    (0.000001, "0.000001"),
    (1e-7, "1e-07"),
    (1e21, "1e+21"),
    (-0.00002, "-0.00002"),
]


@pytest.mark.parametrize(("value", "text"), NUMBERS)
def test_amounts_are_read_from_numbers_as_go_writes_them(value: float, text: str) -> None:
    assert number_text(value) == text
