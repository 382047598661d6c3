"""Amounts: text and number agree, arithmetic is exact, parsing always ends."""

import math
import pickle

from hypothesis import example, given
from hypothesis import strategies as st

from nodewright.model.values.quantity import ZERO, Quantity, QuantityError, QuantityFormat, fits_int64
from nodewright.testing.strategies import quantities

LETTERS = "0123456789.+-eEinumkKMGTP \n_x\u0663"


@given(quantities())
def test_canonical_text_stands_for_the_same_amount(amount: Quantity) -> None:
    if abs(amount.as_fraction()) < 10**20:  # beyond E, Kubernetes prints the mantissa alone
        assert Quantity.parse(amount.canonical()) == amount


@given(quantities())
def test_printing_what_was_parsed_from_print_changes_nothing(amount: Quantity) -> None:
    once = str(Quantity.parse(str(amount)))
    assert str(Quantity.parse(once)) == once


@given(quantities(), quantities())
def test_order_is_that_of_the_numbers(left: Quantity, right: Quantity) -> None:
    a, b = left.as_fraction(), right.as_fraction()
    assert (left < right, left == right, left > right) == (a < b, a == b, a > b)
    assert left.compare(right) == -right.compare(left)


@given(quantities(), quantities())
def test_equal_amounts_have_equal_hashes(left: Quantity, right: Quantity) -> None:
    assert hash(left + right) == hash(right + left)
    assert left != right or hash(left) == hash(right)
    assert hash(left.rounded_up(-12)[0]) == hash(left)


@given(quantities(), quantities(), quantities())
def test_sums_are_exact_in_any_order(a: Quantity, b: Quantity, c: Quantity) -> None:
    assert ((a + b) + c).as_fraction() == a.as_fraction() + b.as_fraction() + c.as_fraction()
    assert (a + b) + c == a + (b + c)
    assert a + b == b + a


@given(quantities(), quantities())
def test_subtraction_undoes_addition_and_negation_is_its_own_inverse(a: Quantity, b: Quantity) -> None:
    assert (a + b) - b == a
    negated = -a
    assert -negated == a
    assert a + negated == ZERO


@given(quantities(), quantities())
def test_a_sum_has_the_left_format_unless_the_left_is_nothing(a: Quantity, b: Quantity) -> None:
    assert (a + b).format == (b.format if a.is_zero() else a.format)


@given(quantities(), st.integers(-(2**40), 2**40))
def test_products_are_exact(amount: Quantity, factor: int) -> None:
    product, _ = amount.times(factor)
    assert product.as_fraction() == amount.as_fraction() * factor


@given(quantities(), st.integers(-9, 12))
def test_rounding_up_covers_and_wastes_less_than_a_unit(amount: Quantity, scale: int) -> None:
    rounded, exact = amount.rounded_up(scale)
    unit = Quantity.of(1, scale=scale).as_fraction()
    waste = abs(rounded.as_fraction()) - abs(amount.as_fraction())
    assert 0 <= waste < unit
    assert exact == (waste == 0)


@given(quantities())
def test_whole_units_are_the_ceiling(amount: Quantity) -> None:
    if 0 <= amount.as_fraction() < 2**53:
        assert amount.value() == math.ceil(amount.as_fraction())
        assert amount.milli_value() == math.ceil(amount.as_fraction() * 1000)


@given(quantities())
def test_a_copy_from_a_pickle_is_the_same_in_every_field(amount: Quantity) -> None:
    copy = pickle.loads(pickle.dumps(amount))  # noqa: S301 - our own bytes
    fields = ("unscaled", "scale", "format", "original_text", "is_int64")
    assert [getattr(copy, name) for name in fields] == [getattr(amount, name) for name in fields]


@given(st.text(LETTERS, max_size=40) | st.text(max_size=20))
@example("0" * 1000)
@example("0" * 1000 + "!")
@example("0" * 100_000 + "!")
@example("1" * 100_000)
@example("eE" * 500)
@example("1e1000")
@example("1e-1000")
@example("9" * 400 + "e999")
@example("1e1000000000")
@example("1e999999999999999999999999")
@example("1" + "0" * 30)
@example("1GB2")
@example("-0." + "0" * 900 + "1")
def test_any_text_is_an_amount_or_a_quantity_error(text: str) -> None:
    try:
        amount = Quantity.parse(text)
    except QuantityError:
        return
    assert str(amount)
    assert amount.canonical()
    assert fits_int64(amount.value())
    assert fits_int64(amount.milli_value())
    assert str(amount + Quantity.parse("1n"))
    assert hash(amount) == hash(amount + ZERO)


@given(st.integers(-(10**30), 10**30), st.sampled_from(tuple(QuantityFormat)))
def test_numbers_of_any_format_print(units: int, fmt: QuantityFormat) -> None:
    assert str(Quantity.of(units, fmt))
