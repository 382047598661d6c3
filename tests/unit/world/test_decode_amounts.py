"""Amounts and times in documents."""

import msgspec
import pytest

from nodewright.model.objects import ObjectMeta, ResourceRequirements
from nodewright.values.instant import Instant
from nodewright.values.quantity import QuantityError
from nodewright.world.decode import amount, decode


def test_blanks_around_an_amount_do_not_count() -> None:
    assert str(decode({"requests": {"memory": " 1Gi\n"}}, ResourceRequirements).requests["memory"]) == "1Gi"
    with pytest.raises(QuantityError):
        amount("1 Gi")


def test_numbers_are_amounts() -> None:
    assert str(amount(2)) == "2"
    assert str(amount(1.5)) == "1500m"


def test_times_are_decoded_with_objects() -> None:
    meta = decode({"deletionTimestamp": "1970-01-01T00:00:01Z", "deletionGracePeriodSeconds": 30}, ObjectMeta)
    assert meta.deletion_timestamp == Instant(10**9)
    assert meta.creation_timestamp is None


@pytest.mark.parametrize("wrong", ["soon", "", 5])
def test_what_is_no_time_is_refused(wrong: object) -> None:
    with pytest.raises(msgspec.ValidationError):
        decode({"deletionTimestamp": wrong}, ObjectMeta)
