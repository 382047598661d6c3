"""Quantities and times in documents."""

import msgspec
import pytest

from nodewright.documents.formats.decode import decode, parse_quantity
from nodewright.model.kubernetes.objects import ObjectMeta, ResourceRequirements
from nodewright.model.values.instant import Instant
from nodewright.model.values.quantity import QuantityError


def test_blanks_around_an_amount_do_not_count() -> None:
    assert str(decode({"requests": {"memory": " 1Gi\n"}}, ResourceRequirements).requests["memory"]) == "1Gi"
    with pytest.raises(QuantityError):
        parse_quantity("1 Gi")


def test_numbers_are_amounts() -> None:
    assert str(parse_quantity(2)) == "2"
    assert str(parse_quantity(1.5)) == "1500m"


def test_times_are_decoded_with_objects() -> None:
    meta = decode({"deletionTimestamp": "1970-01-01T00:00:01Z", "deletionGracePeriodSeconds": 30}, ObjectMeta)
    assert meta.deletion_timestamp == Instant(10**9)
    assert meta.creation_timestamp is None


@pytest.mark.parametrize("wrong", ["soon", "", 5])
def test_an_invalid_time_is_rejected(wrong: object) -> None:
    with pytest.raises(msgspec.ValidationError):
        decode({"deletionTimestamp": wrong}, ObjectMeta)
