"""Texts that the cases of core/quota do not show."""

import pytest

from nodewright.model.api_request import GroupResource
from nodewright.model.objects import ObjectMeta
from nodewright.model.quota_objects import ScopeTerm
from nodewright.model.quota_reasons import (
    NoQuotaForScopes,
    Overrun,
    QuotaExceeded,
    SelectorFault,
    SelectorRule,
    StatusUnknown,
    UnreadableScope,
)
from nodewright.render.quota_messages import quota_error, quota_message, selector_error
from nodewright.values.quantity import Quantity

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


@pytest.mark.parametrize(("operator", "values", "faults", "said"), SELECTORS)
def test_a_selector_is_unreadable_for_reasons_that_are_said(
    operator: str, values: tuple[str, ...] | None, faults: tuple[SelectorFault, ...], said: str
) -> None:
    term = ScopeTerm(scope_name="PriorityClass", operator=operator, values=values)
    assert selector_error(UnreadableScope(term=term, faults=faults)) == (
        f"failed to parse and convert selector: {said}"
    )


def test_an_object_without_a_name_has_the_one_it_will_be_made_from_or_none() -> None:
    reason = StatusUnknown(quota="q", resources=("pods", "cpu"))
    said = "is forbidden: status unknown for quota: q, resources: cpu,pods"
    assert (
        quota_error(GroupResource("pods"), ObjectMeta(generate_name="web-"), reason) == f'pods "web-" {said}'
    )
    assert quota_error(GroupResource("pods"), ObjectMeta(), reason) == f'pods "Unknown" {said}'


def test_what_a_status_does_not_name_is_not_said_to_be_used() -> None:
    over = Overrun(resource="x", requested=Quantity.of(1), used=None, limited=Quantity.of(0))
    assert quota_message(QuotaExceeded(quota="q", overruns=(over,))) == (
        "exceeded quota: q, requested: x=1, used: , limited: x=0"
    )


def test_scopes_without_a_quota_are_printed_as_go_prints_them() -> None:
    terms = (
        ScopeTerm(scope_name="PriorityClass", operator="In", values=("a", "b")),
        ScopeTerm(scope_name="BestEffort", operator="Exists"),
    )
    assert quota_message(NoQuotaForScopes(terms=terms)) == (
        "insufficient quota to match these scopes: [{PriorityClass In [a b]} {BestEffort Exists []}]"
    )
