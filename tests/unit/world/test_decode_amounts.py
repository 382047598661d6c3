"""Amounts in documents."""

import pytest

from nodewright.model.objects import ResourceRequirements
from nodewright.values.quantity import QuantityError
from nodewright.world.decode import amount, decode


def test_blanks_around_an_amount_do_not_count() -> None:
    assert str(decode({"requests": {"memory": " 1Gi\n"}}, ResourceRequirements).requests["memory"]) == "1Gi"
    with pytest.raises(QuantityError):
        amount("1 Gi")


def test_numbers_are_amounts() -> None:
    assert str(amount(2)) == "2"
    assert str(amount(1.5)) == "1500m"
