"""Parsing, printing and arithmetic of quantities, case by case."""

import pickle
from fractions import Fraction

import pytest

from nodewright.model.values.quantity import ZERO, Quantity, QuantityError, QuantityFormat

# text -> printed, canonical, units rounded up, format
TEXTS = """
    0           0           0               0                    DecimalSI
    .           0           0               0                    DecimalSI
    +           0           0               0                    DecimalSI
    m           0           0               0                    DecimalSI
    Ki          0           0               0                    BinarySI
    E           0           0               0                    DecimalSI
    e3          0           0               0                    DecimalExponent
    +1          +1          1               1                    DecimalSI
    01          01          1               1                    DecimalSI
    1.500       1.500       1500m           2                    DecimalSI
    1000m       1           1               1                    DecimalSI
    12345k      12345k      12345k          12345000             DecimalSI
    1E          1E          1E              1000000000000000000  DecimalSI
    1E3         1E3         1e3             1000                 DecimalExponent
    1e-3        1e-3        1e-3            1                    DecimalExponent
    1e4294967296 1e4294967296 1             1                    DecimalExponent
    100Mi       100Mi       100Mi           104857600            BinarySI
    1024Ki      1Mi         1Mi             1048576              BinarySI
    1025Ki      1025Ki      1025Ki          1049600              BinarySI
    512Ki       512Ki       512Ki           524288               BinarySI
    1.1Gi       1181116006400m 1181116006400m 1181116007         BinarySI
    0.0001Ki    102400u     102400u         1                    DecimalSI
    -0.0001Ki   -102400u    -102400u        1                    DecimalSI
    9Ei         9223372036854775807 9223372036854775807 9223372036854775807 BinarySI
    0.1n        1n          1n              1                    DecimalSI
    -1.5n       -2n         -2n             1                    DecimalSI
    2000E       2           2               0                    DecimalSI
    -0.5        -500m       -500m           -1                   DecimalSI
    -0.1Ki      -102400m    -102400m        -101                 BinarySI
"""


@pytest.mark.parametrize("line", TEXTS.strip().splitlines())
def test_texts_are_kept_or_made_canonical_as_kubernetes_does(line: str) -> None:
    text, printed, canonical, units, fmt = line.split()
    amount = Quantity.parse(text)
    assert (str(amount), amount.canonical()) == (printed, canonical)
    assert str(amount.value()) == units
    assert amount.format == fmt


FORMAT, NUMBER, SUFFIX = "must match the regular expression", "numeric part", "suffix"
WRONG = {
    "": FORMAT,
    "1 ": FORMAT,
    "1GB2": FORMAT,
    "\u0661": FORMAT,
    "1_000": FORMAT,
    "--1": SUFFIX,
    "1.2.3": FORMAT,
    "0x10": FORMAT,
    "0" * 2000: FORMAT,
    "1K": SUFFIX,
    "1KB": FORMAT,
    "1ki": SUFFIX,
    "e": SUFFIX,
    "1e9999": SUFFIX,
    "1e99999999999999999999": SUFFIX,
    "1eE5": SUFFIX,
    "Pi": NUMBER,
    ".Ei": NUMBER,
    "e-10": NUMBER,
    "e4294967286": NUMBER,
}


@pytest.mark.parametrize("text", WRONG)
def test_other_texts_are_rejected_with_kubernetes_error(text: str) -> None:
    with pytest.raises(QuantityError, match=WRONG[text]):
        Quantity.parse(text)


def test_json_accepts_numbers_null_and_blanks_inside_the_quotes() -> None:
    assert Quantity.parse_json('" 1Gi "') == Quantity.parse("1Gi")
    assert Quantity.parse_json("1.5") == Quantity.parse("1500m")
    assert Quantity.parse_json("null") == ZERO


def test_a_quantity_cannot_be_changed() -> None:
    with pytest.raises(AttributeError):
        ZERO.unscaled = 1


def test_an_amount_without_a_format_prints_as_an_exponent() -> None:
    assert str(Quantity(5, 4, QuantityFormat.UNSET)) == "50e3"


def test_it_is_equal_to_amounts_only() -> None:
    assert Quantity.of(1) != 1
    assert Quantity.of(1) == Quantity.of_milli(1000)
    assert len({Quantity.of(1), Quantity.of_milli(1000), Quantity.parse("1")}) == 1


# The kubelet's own arithmetic at the edges of 64 bits.
def test_whole_units_beyond_64_bits_wrap_or_become_0_as_in_kubernetes() -> None:
    assert Quantity.parse("1e30").value() == 0
    assert Quantity.parse("10000000000000000001").as_int64() is None
    assert Quantity.parse("12345678901234567890").value() == 12345678901234567890 - 2**64
    assert Quantity.parse("1e19").as_int64() is None
    assert Quantity.parse("5e3").as_int64() == 5000
    assert Quantity.parse("1.1Gi").as_int64() is None


def test_a_big_number_in_finer_units_wraps() -> None:
    big = Quantity(2**63, -9, QuantityFormat.DECIMAL_SI, is_int64=False)
    assert big.scaled_value(-9) == -(2**63)
    assert big.scaled_value(-8) == 922337203685477581


def test_products_become_decimals_if_they_exceed_64_bits() -> None:
    product, fits = Quantity.parse("5").times(2**62)
    assert (product, fits, product.is_int64) == (Quantity.of(5 * 2**62), False, False)
    assert Quantity.parse("1500m").times(2)[0].is_int64
    assert not Quantity.parse("1500m").times(3)[0].is_int64
    assert Quantity.parse("0").times(7) == (ZERO, True)
    assert Quantity.parse("7k").times(0) == (ZERO, True)
    assert Quantity.parse("1.1Gi") * 2 == Quantity.parse("2.2Gi")


def test_rounding_keeps_amounts_that_are_coarse_enough() -> None:
    kept = Quantity.parse("+1")
    assert kept.rounded_up(-3)[0] is kept
    assert Quantity.parse("1.1Gi").rounded_up(-12) == (Quantity.parse("1.1Gi"), True)
    assert Quantity.parse("1.1Gi").rounded_up(0) == (Quantity.of(1181116007), False)
    assert Quantity.parse("-1500m").rounded_up(0) == (Quantity.of(-2), False)
    assert Quantity.parse("1m").rounded_up(5000) == (Quantity.of(1, scale=5000), False)


def test_floats_are_near_and_overflow_to_infinity() -> None:
    assert Quantity.parse("1.5Gi").as_float() == 1.5 * 2**30
    assert Quantity.parse("1500m").approximate_float() == 1.5
    assert Quantity.parse("3").approximate_float() == 3.0
    assert Quantity.parse("1e400").approximate_float() == float("inf")
    assert Quantity.parse("1e400").as_float() == float("inf")
    assert Quantity.parse("-1e400").as_float() == float("-inf")
    assert Quantity.of(0, scale=400).approximate_float() != Quantity.of(0, scale=400).approximate_float()


def test_signs() -> None:
    assert [Quantity.parse(text).sign() for text in ("-1n", "0", "1n")] == [-1, 0, 1]


def test_a_sum_beyond_64_bits_becomes_a_decimal() -> None:
    assert not (Quantity.of(2**62) + Quantity.of(2**62)).is_int64
    assert (Quantity.of(2**62) + Quantity.of(2**62)).as_fraction() == 2**63
    assert Quantity.parse("1Ei") + Quantity.parse("7Ei") == Quantity.of(2**63)
    assert str(Quantity.parse("1Ei") + Quantity.parse("7Ei")) == "8Ei"


def test_its_repr_contains_its_text() -> None:
    assert repr(Quantity.parse("1024Ki")) == "Quantity('1Mi')"


def test_it_subtracts_negates_and_converts_to_a_fraction() -> None:
    assert Quantity.parse("1") - Quantity.parse("250m") == Quantity.of_milli(750)
    assert str(ZERO - Quantity.parse("1Gi")) == "-1Gi"
    assert -Quantity.parse("1Ki") == Quantity.of(-1024)
    assert Quantity.parse("1500m").as_fraction() == Fraction(3, 2)


def test_it_survives_a_pickle_with_its_text() -> None:
    assert str(pickle.loads(pickle.dumps(Quantity.parse("1.500")))) == "1.500"  # noqa: S301 - our own bytes
    assert str(Quantity.parse("0.0Ki")) == "0"
