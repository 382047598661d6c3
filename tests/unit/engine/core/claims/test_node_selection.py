"""Selectors of nodes in ResourceSlices: which node they select, and the errors of those that do not parse."""

import pytest

from nodewright.engine.core.claims.node_selection import NodeSelectorError, selects_node
from nodewright.model.kubernetes.cluster_objects import APINode
from nodewright.model.kubernetes.objects import (
    NodeSelector,
    NodeSelectorRequirement,
    NodeSelectorTerm,
    ObjectMeta,
)

NODE = APINode(metadata=ObjectMeta(name="n1", labels={"zone": "a", "gpus": "8"}))


def term(text: str) -> NodeSelectorTerm:
    """`KEY OPERATOR [VALUE...]` of labels, or of fields after `field`."""
    is_field = text.startswith("field ")
    key, operator, *values = text.removeprefix("field ").split()
    requirement = NodeSelectorRequirement(
        key="" if key == "-" else key, operator=operator, values=tuple(values)
    )
    fields = (requirement,) if is_field else ()
    return NodeSelectorTerm(match_expressions=() if is_field else (requirement,), match_fields=fields)


@pytest.mark.parametrize(
    ("terms", "is_selected"),
    [
        (["zone In a b"], True),
        (["zone NotIn a"], False),
        (["gpus Gt 7"], True),
        (["gpus Lt 8"], False),
        (["rack DoesNotExist"], True),
        (["field metadata.name In n1"], True),
        (["field metadata.name NotIn n1"], False),
        (["field metadata.name In n2"], False),
        (["zone In b", "gpus Exists"], True),
    ],
)
def test_a_selector_selects_a_node_that_one_of_its_terms_matches(terms: list[str], is_selected: bool) -> None:
    assert selects_node(NodeSelector(node_selector_terms=tuple(map(term, terms))), NODE) is is_selected


def test_a_term_without_expressions_matches_no_node() -> None:
    assert not selects_node(NodeSelector(node_selector_terms=(NodeSelectorTerm(),)), NODE)


EXPRESSION = "nodeSelectorTerms[0].matchExpressions[0]"
FIELD = "nodeSelectorTerms[0].matchFields[0]"
NO_INTEGER = "for 'Gt', 'Lt' operators, the value must be an integer"


@pytest.mark.parametrize(
    ("text", "error"),
    [
        ("zone Like a", f'{EXPRESSION}.operator: Unsupported value: "Like": supported values: "In", '),
        (
            "zone In",
            f"{EXPRESSION}.values: Invalid value: null: for 'in', 'notin' operators, values set can't be empty",
        ),
        (
            "zone Exists a",
            f'{EXPRESSION}.values: Invalid value: ["a"]: values set must be empty for exists and does not exist',
        ),
        (
            "gpus Gt 1 2",
            f"{EXPRESSION}.values: Invalid value: [\"1\",\"2\"]: for 'Gt', 'Lt' operators, exactly one value is required",
        ),
        ("gpus Lt many", f'{EXPRESSION}.values[0]: Invalid value: "many": {NO_INTEGER}'),
        ("a/ In a", f'{EXPRESSION}.key: Invalid value: "a/": name part must be non-empty'),
        ("zone In -a", f'{EXPRESSION}.values[0]: Invalid value: "-a": a valid label must be'),
        ("field metadata.name Exists", f'{FIELD}.operator: Unsupported value: "Exists": supported values: '),
        ("field metadata.name In a b", f'{FIELD}.values: Invalid value: ["a","b"]: must have one element'),
    ],
)
def test_a_selector_that_does_not_parse_is_an_error_whatever_its_other_terms_match(
    text: str, error: str
) -> None:
    selector = NodeSelector(node_selector_terms=(term(text), term("zone Exists")))
    with pytest.raises(NodeSelectorError) as raised:
        selects_node(selector, NODE)
    assert error in str(raised.value)
    assert str(raised.value).startswith("failed to parse node selector &NodeSelector{NodeSelectorTerms:[]")
