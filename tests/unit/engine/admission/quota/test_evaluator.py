"""Scopes, and kinds of which only the number counts."""

import pytest
from tests.unit.engine.admission.quota.objects import NOW, a_quota, a_service, a_term, short

from nodewright.documents.formats.decode import decode
from nodewright.engine.admission.quota.evaluator import (
    SERVICE_EVALUATOR,
    object_count_evaluator,
    selector_faults,
    selects,
)
from nodewright.engine.admission.quota.object_usage import pod_evaluator
from nodewright.model.kubernetes.api_request import (
    APIRequest,
    GroupResource,
    Operation,
    create_request,
    update_request,
)
from nodewright.model.kubernetes.cluster_objects import PartialObjectMetadata, ScopeTerm
from nodewright.model.reasons.quota import SelectorFault, SelectorRule, UnreadableScope
from nodewright.testing.objects import a_pod

# term  ->  whether it selects "high", and an object without a value
SELECTED = """
    In high            ->  yes no
    In low,high        ->  yes no
    In low             ->  no  no
    NotIn low          ->  yes yes
    NotIn high         ->  no  yes
    Exists             ->  yes no
    DoesNotExist       ->  no  yes
"""


def term(words: str) -> ScopeTerm:
    return decode(a_term(f"PriorityClass {words}"), ScopeTerm)


@pytest.mark.parametrize("line", SELECTED.strip().splitlines())
def test_terms_select_values_or_the_lack_of_one(line: str) -> None:
    words, _, answers = line.partition("->")
    high, none = (answer == "yes" for answer in answers.split())
    assert (selects(term(words), "high"), selects(term(words), None)) == (high, none)


@pytest.mark.parametrize(
    ("words", "faults"),
    [
        ("In", [SelectorRule.VALUES_NEEDED]),
        ("NotIn", [SelectorRule.VALUES_NEEDED]),
        ("DoesNotExist low", [SelectorRule.NO_VALUES]),
        ("Exists low,-", [SelectorRule.NO_VALUES, SelectorRule.LABEL_VALUE]),
        ("In ok,a/b,-", [SelectorRule.LABEL_VALUE, SelectorRule.LABEL_VALUE]),
        ("Like low", [SelectorRule.OPERATOR]),
        ("DoesNotExist", []),
    ],
)
def test_terms_say_why_they_cannot_be_read(words: str, faults: list[SelectorRule]) -> None:
    assert [fault.rule for fault in selector_faults(term(words))] == faults


def test_the_value_at_fault_is_named_by_its_place() -> None:
    assert selector_faults(term("In ok,a/b")) == (SelectorFault(rule=SelectorRule.LABEL_VALUE, index=1),)


def test_terms_are_read_only_where_their_values_count() -> None:
    kind = pod_evaluator(NOW)
    odd = ScopeTerm(scope_name="BestEffort", operator="Like", values=("x",))
    exists = ScopeTerm(scope_name="PriorityClass", operator="Exists", values=("x",))
    assert kind.first_invalid_term([odd, exists]) is None
    assert kind.is_in_scope(odd, a_pod())
    wrong = term("In")
    fault = SelectorFault(rule=SelectorRule.VALUES_NEEDED)
    assert kind.first_invalid_term([odd, term("In low"), wrong]) == UnreadableScope(
        term=wrong, faults=(fault,)
    )


def test_a_kind_without_scopes_is_in_none_and_wants_none() -> None:
    best_effort = ScopeTerm(scope_name="BestEffort", operator="Exists")
    service = a_service()
    assert SERVICE_EVALUATOR.first_invalid_term([term("In")]) is None
    assert SERVICE_EVALUATOR.matching_scopes([best_effort], service) == ()
    assert SERVICE_EVALUATOR.uncovered_scopes([best_effort], []) == ()
    assert SERVICE_EVALUATOR.matches_quota(a_quota("services=1"), service)
    assert not SERVICE_EVALUATOR.matches_quota(a_quota("services=1", scopes="BestEffort"), service)
    assert not SERVICE_EVALUATOR.matches_quota(a_quota("pods=1"), service)


def test_terms_are_covered_by_any_of_the_same_scope() -> None:
    low, high = term("In low"), term("In high")
    best_effort = ScopeTerm(scope_name="BestEffort", operator="Exists")
    assert pod_evaluator(NOW).uncovered_scopes([low, best_effort], [high]) == (best_effort,)


# plural and group  ->  what one object is charged
COUNTED = """
    deployments apps    ->  count/deployments.apps=1
    configmaps          ->  configmaps=1 count/configmaps=1
    secrets             ->  count/secrets=1 secrets=1
    endpoints           ->  count/endpoints=1
    configmaps example  ->  count/configmaps.example=1
"""


@pytest.mark.parametrize("line", COUNTED.strip().splitlines())
def test_other_objects_are_counted_some_under_two_names(line: str) -> None:
    named, _, charged = line.partition("->")
    kind = object_count_evaluator(GroupResource(*named.split()))
    usage = kind.usage(PartialObjectMetadata())
    assert short(usage) == charged.strip()
    assert kind.matching_resources(["pods", *usage]) == tuple(sorted(usage))


def test_other_objects_are_counted_when_they_are_created() -> None:
    kind, item = object_count_evaluator(GroupResource("configmaps")), PartialObjectMetadata()
    assert kind.is_handled(create_request(item))
    assert not kind.is_handled(update_request(item, item))
    assert not kind.is_handled(APIRequest(operation=Operation.CREATE, object=item, subresource="status"))
