import pytest

from nodewright.model.values.golang import (
    NumberError,
    base_path,
    clean_path,
    float32,
    float_text,
    parse_float32,
    parse_int,
    quoted,
    quoted_list,
    text_map,
)


@pytest.mark.parametrize(
    ("text", "shown"),
    [
        ("plain", '"plain"'),
        ('a"b\\c', '"a\\"b\\\\c"'),
        ("\a\b\f\n\r\t\v", '"\\a\\b\\f\\n\\r\\t\\v"'),
        ("\x01\x7f", '"\\x01\\x7f"'),
        ("é🧪", '"é🧪"'),
        ("\u200b", '"\\u200b"'),
        ("\U000e0001", '"\\U000e0001"'),
    ],
)
def test_texts_are_quoted_as_go_quotes(text: str, shown: str) -> None:
    assert quoted(text) == shown


def test_lists_and_maps_print_as_in_go() -> None:
    assert quoted_list(()) == "[]"
    assert text_map({}) == "map[]"
    assert text_map({"b": 2, "a": "x"}) == "map[a:x b:2]"


@pytest.mark.parametrize(
    ("number", "shown"),
    [
        (0.0, "0"),
        (-0.5, "-0.5"),
        (100.0, "100"),
        (1.1, "1.1"),
        (0.0001, "0.0001"),
        (0.00001, "1e-05"),
        (1.5e-7, "1.5e-07"),
        (1e20, "100000000000000000000"),
        (1e21, "1e+21"),
        (1.25e100, "1.25e+100"),
        (123456.789, "123456.789"),
        (5e-324, "5e-324"),
        (float("inf"), "+Inf"),
        (float("-inf"), "-Inf"),
        (float("nan"), "NaN"),
    ],
)
def test_floats_print_as_in_go(number: float, shown: str) -> None:
    assert float_text(number) == shown


def test_a_32_bit_float_is_rounded_once() -> None:
    assert parse_float32("10") == 10
    assert float32(parse_float32("10") / 100) == 0.10000000149011612
    # Between two 32-bit floats, just off the middle: a 64-bit float in between would hide on which side.
    middle = "1.000000059604644775390625"
    assert parse_float32(middle) == 1.0
    assert parse_float32(f"{middle}0000000000000000000001") == float32(1.0000001)
    assert parse_float32("1.0000001788139343261718749999999999") == float32(1.0000001)
    assert parse_float32("-1.0000000596046447753906250000001") == -float32(1.0000001)
    assert parse_float32("-1.0000001788139343261718749999999999") == -float32(1.0000001)


@pytest.mark.parametrize(
    ("text", "number"),
    [("1_0.5", 10.5), (".5", 0.5), ("5.", 5.0), ("0x1p-2", 0.25), ("0X_1.8p1", 3.0), ("+1e1", 10.0)],
)
def test_go_float_syntax_is_accepted(text: str, number: float) -> None:
    assert parse_float32(text) == number


def test_infinity_and_nan_are_floats() -> None:
    assert parse_float32("-Inf") == float("-inf")
    assert parse_float32("NaN") != parse_float32("NaN")
    assert float32(1e300) == float("inf")
    assert float32(-1e300) == float("-inf")


@pytest.mark.parametrize("text", ["", " 5", "5 ", "1__0", "_1", "1e", "0x1", "٣", "+nan", "1" * 401])
def test_an_invalid_float_is_rejected(text: str) -> None:
    with pytest.raises(NumberError) as refused:
        parse_float32(text)
    assert str(refused.value) == f"strconv.ParseFloat: parsing {quoted(text)}: invalid syntax"


@pytest.mark.parametrize("text", ["1e39", "-1e400", "0x1p2000", "-0x1p2000"])
def test_floats_beyond_32_bits_are_rejected(text: str) -> None:
    with pytest.raises(NumberError, match="value out of range"):
        parse_float32(text)


def test_integers_are_parsed_as_in_go() -> None:
    assert parse_int("+007") == 7
    assert parse_int("-9223372036854775808") == -(2**63)
    for text, why in [
        ("", "invalid syntax"),
        ("1.0", "invalid syntax"),
        ("9223372036854775808", "value out of range"),
        ("9" * 5000, "value out of range"),
        ("-" + "9" * 30, "value out of range"),
    ]:
        with pytest.raises(NumberError) as refused:
            parse_int(text)
        assert str(refused.value) == f"strconv.Atoi: parsing {quoted(text)}: {why}"


@pytest.mark.parametrize(
    ("path", "cleaned", "base"),
    [
        ("", ".", "."),
        ("/", "/", "/"),
        ("a//b/", "a/b", "b"),
        ("./a/.", "a", "."),
        ("a/../..", "..", ".."),
        ("../../x", "../../x", "x"),
        ("/../a", "/a", "a"),
        ("/a/../../b", "/b", "b"),
    ],
)
def test_paths_are_cleaned_lexically(path: str, cleaned: str, base: str) -> None:
    assert (clean_path(path), base_path(path)) == (cleaned, base)
