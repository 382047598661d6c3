"""Every parser takes a text or refuses it with its own error, whatever the text; what it takes, it prints and takes again."""

from collections.abc import Callable

import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from nodewright.documents.formats.documents import parse_documents
from nodewright.documents.profiles.machine_shapes import parse_shape_rules
from nodewright.model.errors import InputError
from nodewright.model.kubernetes.resource_names import huge_page_bytes
from nodewright.model.values.duration import Duration, DurationError
from nodewright.model.values.golang import NumberError, parse_int, saturated_int
from nodewright.model.values.idset import CPUSet, IdSetError
from nodewright.model.values.instant import Instant, InstantError
from nodewright.model.values.quantity import Quantity, QuantityError
from nodewright.predict.timeline.usage_forecast import parse_moment, parse_rate

ODD = "0123456789+-.,eEinumkKMGTPhs:TZx/%_ \0\u0660\uff11"
TEXTS = st.text(ODD, max_size=40) | st.text(max_size=20) | st.integers(1, 6000).map(lambda count: "9" * count)
PARSERS: tuple[tuple[Callable[[str], object], type[Exception]], ...] = (
    (Quantity.parse, QuantityError),
    (CPUSet.parse, IdSetError),
    (Duration.parse, DurationError),
    (Instant.parse, InstantError),
    (parse_int, NumberError),
    (parse_rate, ValueError),
    (parse_moment, ValueError),
    (huge_page_bytes, ValueError),
    (lambda text: parse_shape_rules((text,)), InputError),
    (lambda text: parse_documents(text.encode(), "text"), InputError),
)
EXAMPLES = (
    "9" * 5000,
    f"0-{'9' * 5000}",
    f"{'9' * 5000}s",
    f"1e{'9' * 30}",
    f"hugepages-1e{'9' * 5}",
    "0x" + "f" * 5000,
)


@pytest.mark.parametrize(("parse", "refusal"), PARSERS)
@given(TEXTS)
@example(EXAMPLES[0])
@example(EXAMPLES[1])
@example(EXAMPLES[2])
@example(EXAMPLES[3])
@example(EXAMPLES[4])
@example(EXAMPLES[5])
def test_a_text_is_taken_or_refused_with_the_parsers_own_error(
    parse: Callable[[str], object], refusal: type[Exception], text: str
) -> None:
    message = ""
    try:
        parse(text)
    except refusal as error:
        message = str(error)
    assert "sys.set_int_max_str_digits" not in message


@given(st.lists(st.integers(0, 65_535), max_size=8))
def test_a_set_that_is_printed_is_parsed_back(ids: list[int]) -> None:
    assert CPUSet.parse(str(CPUSet.of(*ids))) == CPUSet.of(*ids)


@given(st.integers(-(2**80), 2**80), st.integers(0, 5000))
def test_a_saturated_number_is_exact_as_far_as_64_bits(number: int, zeros: int) -> None:
    sign, digits = ("-", str(-number)) if number < 0 else ("", str(number))
    saturated = saturated_int(f"{sign}{'0' * zeros}{digits}")
    if abs(number) <= 2**64:
        assert saturated == number
    else:
        assert abs(saturated) > 2**64
        assert (saturated < 0) == (number < 0)
