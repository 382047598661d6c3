from typing import Any

import pytest

from nodewright.engine.core.predicates.node_affinity import affinity_mismatch
from nodewright.model.reasons.predicates import (
    LabelMissing,
    NodeAffinityMismatch,
    RequirementUnmet,
    TermUnmet,
)
from nodewright.testing.objects import a_pod

LABELS = {"zone": "a", "gen": "10", "odd": "1_000", "empty": ""}

EXPRESSIONS = """
    zone     In            a,b      holds
    zone     In            b        fails
    lacking  In            a        fails
    zone     In            -        never
    zone     NotIn         b,c      holds
    zone     NotIn         a        fails
    lacking  NotIn         a        holds
    zone     NotIn         -        never
    zone     Exists        -        holds
    empty    Exists        -        holds
    lacking  Exists        -        fails
    zone     Exists        a        never
    zone     DoesNotExist  -        fails
    lacking  DoesNotExist  -        holds
    lacking  DoesNotExist  a        never
    gen      Gt            9        holds
    gen      Gt            10       fails
    gen      Lt            11       holds
    gen      Lt            10       fails
    gen      Gt            007      holds
    gen      Gt            9,8      never
    gen      Gt            nine     never
    gen      Gt            -1       never
    gen      Gt            9223372036854775808  never
    zone     Gt            1        fails
    odd      Gt            1        fails
    lacking  Lt            1        fails
    zone     Matches       a        never
    zone     In            no!      never
    -zone    DoesNotExist  -        never
"""


def required(*terms: dict[str, Any]) -> dict[str, Any]:
    return {
        "nodeAffinity": {"requiredDuringSchedulingIgnoredDuringExecution": {"nodeSelectorTerms": list(terms)}}
    }


def mismatch(node: str = "node1", **spec: Any) -> NodeAffinityMismatch | None:
    return affinity_mismatch(a_pod(**spec).spec, node, LABELS)


def expression(key: str, operator: str, *values: str) -> dict[str, Any]:
    return {"key": key, "operator": operator, "values": list(values)}


@pytest.mark.parametrize("line", EXPRESSIONS.strip().splitlines())
def test_expressions_hold_as_label_selectors_do(line: str) -> None:
    key, operator, text, outcome = line.split()
    values = [] if text == "-" else text.split(",")
    node_affinity_mismatch = mismatch(
        affinity=required({"matchExpressions": [expression(key, operator, *values)]})
    )
    if outcome == "holds":
        assert node_affinity_mismatch is None
    else:
        assert node_affinity_mismatch is not None
        [unmet] = node_affinity_mismatch.terms[0].unmet
        assert unmet == RequirementUnmet(
            key=key,
            operator=operator,
            values=tuple(values),
            actual=LABELS.get(key),
            invalid=outcome == "never",
        )


def test_every_pair_of_the_node_selector_must_be_there() -> None:
    assert mismatch(nodeSelector={"zone": "a", "gen": "10"}) is None
    assert mismatch(nodeSelector={"zone": "b", "gen": "10", "disk": "ssd"}) == NodeAffinityMismatch(
        node="node1",
        selector=(
            LabelMissing(key="zone", wanted="b", actual="a"),
            LabelMissing(key="disk", wanted="ssd", actual=None),
        ),
    )


def test_one_term_is_enough_but_all_of_its_expressions_must_hold() -> None:
    good, bad = expression("zone", "Exists"), expression("gen", "Lt", "3")
    assert mismatch(affinity=required({"matchExpressions": [bad]}, {"matchExpressions": [good]})) is None
    assert mismatch(affinity=required({"matchExpressions": [good, bad]})) is not None


def test_an_expression_that_cannot_be_read_spoils_its_term_alone() -> None:
    spoiled = {"matchExpressions": [expression("zone", "Exists"), expression("zone", "Like", "a")]}
    assert mismatch(affinity=required(spoiled)) is not None
    assert mismatch(affinity=required(spoiled, {"matchExpressions": [expression("zone", "Exists")]})) is None


def test_an_empty_term_and_an_empty_list_of_terms_hold_nowhere() -> None:
    assert mismatch(affinity=required({})) == NodeAffinityMismatch(
        node="node1", terms=(TermUnmet(index=0, unmet=()),)
    )
    assert mismatch(affinity=required()) == NodeAffinityMismatch(node="node1")


def test_preferred_affinity_is_ignored() -> None:
    assert mismatch(affinity={"nodeAffinity": {}}) is None
    assert mismatch(affinity={}) is None


FIELDS = """
    metadata.name  In      node1        holds
    metadata.name  In      node2        fails
    metadata.name  NotIn   node2        holds
    metadata.name  NotIn   node1        fails
    metadata.name  In      node1,node2  fails
    metadata.name  Exists  -            fails
    spec.other     In      x            fails
    spec.other     NotIn   x            holds
"""


@pytest.mark.parametrize("line", FIELDS.strip().splitlines())
def test_fields_are_compared_with_exactly_one_value(line: str) -> None:
    key, operator, text, outcome = line.split()
    values = [] if text == "-" else text.split(",")
    node_affinity_mismatch = mismatch(
        affinity=required({"matchFields": [expression(key, operator, *values)]})
    )
    assert (node_affinity_mismatch is None) == (outcome == "holds")
    assert node_affinity_mismatch is None or node_affinity_mismatch.terms[0].unmet[0].on_field


def test_the_fields_of_a_node_without_a_name_are_not_looked_at() -> None:
    other = required({"matchFields": [expression("metadata.name", "In", "node2")]})
    assert mismatch(node="", affinity=other) is None
    unreadable = required({"matchFields": [expression("metadata.name", "Exists")]})
    assert mismatch(node="", affinity=unreadable) is not None


def test_selector_and_terms_must_both_be_satisfied() -> None:
    good = required({"matchExpressions": [expression("zone", "Exists")]})
    assert mismatch(affinity=good, nodeSelector={"zone": "b"}) == NodeAffinityMismatch(
        node="node1", selector=(LabelMissing(key="zone", wanted="b", actual="a"),)
    )
