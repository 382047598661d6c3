from collections.abc import Callable

import pytest

from nodewright.engine.admission.quota import evaluator as lists
from nodewright.model.kubernetes.objects import ResourceList
from nodewright.testing.objects import amounts

FUNCTIONS: dict[str, Callable[[ResourceList, ResourceList], ResourceList]] = {
    "greatest": lists.maximum,
    "total": lists.total,
    "difference": lists.difference,
    "increase": lists.positive_difference,
}

# function: a | b  ->  what comes of them
TABLE = """
    greatest:   cpu=1 a=2          | cpu=1000m b=3  ->  a=2 b=3 cpu=1
    greatest:   cpu=2              | cpu=1          ->  cpu=2
    greatest:   cpu=1              | cpu=2          ->  cpu=2
    total:      cpu=500m a=1       | cpu=1 b=1Gi    ->  a=1 b=1Gi cpu=1500m
    total:      memory=1Gi         | memory=1M      ->  memory=1074741824
    difference: cpu=1 a=1          | cpu=3 b=1      ->  a=1 b=-1 cpu=-2
    increase:   cpu=1 a=1 memory=2 | cpu=3 b=1 memory=1  ->  a=1 b=0 cpu=0 memory=1
    increase:   cpu=1              | b=-1           ->  b=0 cpu=1
"""


@pytest.mark.parametrize("line", TABLE.strip().splitlines())
def test_lists_are_reckoned_name_by_name(line: str) -> None:
    function, _, rest = line.strip().partition(":")
    a, b, wanted = rest.replace("->", "|").split("|")
    document = FUNCTIONS[function](amounts(a.strip()), amounts(b.strip()))
    assert " ".join(f"{name}={document[name]}" for name in sorted(document)) == wanted.strip()


def test_equal_lists_name_the_same_resources() -> None:
    assert lists.are_equal(amounts("cpu=1"), amounts("cpu=1000m"))
    assert not lists.are_equal(amounts("cpu=1"), amounts("cpu=1 memory=0"))


def test_only_what_both_lists_name_can_exceed() -> None:
    used = amounts("memory=2 cpu=2 pods=1 a=9")
    assert lists.exceeding(used, amounts("memory=1 cpu=1 pods=1 b=0")) == ("cpu", "memory")


def test_lists_are_sifted() -> None:
    mixed = amounts("b=-1 a=-2 zero=0 cpu=1")
    assert lists.masked(mixed, ["cpu", "zero", "nobody"]) == amounts("cpu=1 zero=0")
    assert lists.without_zeros(mixed) == amounts("b=-1 a=-2 cpu=1")
    assert lists.negative(mixed) == ("a", "b")
    assert lists.is_zero(amounts("a=0 b=0m"))
    assert not lists.is_zero(mixed)


def test_names_come_sorted_and_once() -> None:
    assert lists.common_names(["b", "a", "c", "a"], ["a", "c", "d"]) == ("a", "c")
    assert lists.names_only_in_first(["b", "a", "c", "b"], ["a", "d"]) == ("b", "c")
