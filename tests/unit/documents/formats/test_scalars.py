import json

import pytest

from nodewright.documents.formats.kubectl_yaml import NotJSONValueError, key_text, number_text, resolve

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
