"""Errors about quotas that the cases of core/quota do not contain."""

import pytest

from nodewright.model.kubernetes.api_request import GroupResource
from nodewright.model.kubernetes.cluster_objects import ScopeTerm
from nodewright.model.kubernetes.objects import ObjectMeta
from nodewright.model.reasons.quota import (
    NoQuotaForScopes,
    Overrun,
    QuotaExceeded,
    SelectorFault,
    SelectorRule,
    StatusUnknown,
    UnreadableScope,
    quota_error,
)
from nodewright.model.values.quantity import Quantity

NO_VALUE = (
    "a valid label must be an empty string or consist of alphanumeric characters, '-', '_' or '.', and must start "
    "and end with an alphanumeric character (e.g. 'MyValue',  or 'my_value',  or '12345', regex used for validation "
    "is '(([A-Za-z0-9][-A-Za-z0-9_.]*)?[A-Za-z0-9])?')"
)
EMPTY = "for 'in', 'notin' operators, values set can't be empty"
NEEDED = SelectorFault(rule=SelectorRule.VALUES_NEEDED)


def value_at(index: int) -> SelectorFault:
    return SelectorFault(rule=SelectorRule.LABEL_VALUE, index=index)


SELECTORS: list[tuple[str, tuple[str, ...] | None, tuple[SelectorFault, ...], str]] = [
    ("In", None, (NEEDED,), f"values: Invalid value: null: {EMPTY}"),
    ("NotIn", (), (NEEDED,), f"values: Invalid value: []: {EMPTY}"),
    (
        "DoesNotExist",
        ("a", "b"),
        (SelectorFault(rule=SelectorRule.NO_VALUES),),
        'values: Invalid value: ["a","b"]: values set must be empty for exists and does not exist',
    ),
    (
        "Like",
        ("a",),
        (SelectorFault(rule=SelectorRule.OPERATOR),),
        '"Like" is not a valid scope selector operator',
    ),
    ("In", ("ok", "-"), (value_at(1),), f'values[1][PriorityClass]: Invalid value: "-": {NO_VALUE}'),
    (
        "In",
        ("a" * 64, "-"),
        (value_at(0), value_at(1)),
        (
            f'[values[0][PriorityClass]: Invalid value: "{"a" * 64}": must be no more than 63 bytes, '
            f'values[1][PriorityClass]: Invalid value: "-": {NO_VALUE}]'
        ),
    ),
]


@pytest.mark.parametrize(("operator", "values", "faults", "error"), SELECTORS)
def test_an_unreadable_selector_has_all_its_faults_in_the_error(
    operator: str, values: tuple[str, ...] | None, faults: tuple[SelectorFault, ...], error: str
) -> None:
    term = ScopeTerm(scope_name="PriorityClass", operator=operator, values=values)
    assert UnreadableScope(term=term, faults=faults).selector_error() == (
        f"failed to parse and convert selector: {error}"
    )


def test_an_object_without_a_name_is_named_by_its_generate_name_or_unknown() -> None:
    reason = StatusUnknown(quota="q", resources=("pods", "cpu"))
    error = "is forbidden: status unknown for quota: q, resources: cpu,pods"
    assert (
        quota_error(GroupResource("pods"), ObjectMeta(generate_name="web-"), reason) == f'pods "web-" {error}'
    )
    assert quota_error(GroupResource("pods"), ObjectMeta(), reason) == f'pods "Unknown" {error}'


def test_resources_missing_from_the_status_are_not_listed_as_used() -> None:
    over = Overrun(resource="x", requested=Quantity.of(1), used=None, limited=Quantity.of(0))
    assert QuotaExceeded(quota="q", overruns=(over,)).message() == (
        "exceeded quota: q, requested: x=1, used: , limited: x=0"
    )


def test_scopes_without_a_quota_are_printed_as_go_prints_them() -> None:
    terms = (
        ScopeTerm(scope_name="PriorityClass", operator="In", values=("a", "b")),
        ScopeTerm(scope_name="BestEffort", operator="Exists"),
    )
    assert NoQuotaForScopes(terms=terms).message() == (
        "insufficient quota to match these scopes: [{PriorityClass In [a b]} {BestEffort Exists []}]"
    )
