"""Whether a slice or device is for a node, and which nodes can use allocated devices."""

from collections.abc import Iterable, Iterator
from functools import lru_cache

import msgspec

from nodewright.model.kubernetes.claims import Device, ResourceSlice, ResourceSliceSpec
from nodewright.model.kubernetes.cluster_objects import APINode
from nodewright.model.kubernetes.name_validation import label_key_errors, label_value_errors
from nodewright.model.kubernetes.objects import NodeSelector, NodeSelectorRequirement, NodeSelectorTerm

_LABEL_OPERATORS = ("In", "NotIn", "Exists", "DoesNotExist", "Gt", "Lt")
_FIELD_OPERATORS = ("In", "NotIn")


class NodeSelectorError(ValueError):
    """A node selector that does not parse; the message is Kubernetes'."""


def is_for_node(place: ResourceSliceSpec | Device, node: APINode) -> bool:
    """Whether the node fields of a slice or device name the node.

    Errors:  NodeSelectorError.
    Follows: v1.36, dynamic-resource-allocation/structured/internal/incubating/pools_incubating.go, NodeMatches.
    """
    if place.node_name:
        return place.node_name == node.metadata.name
    if place.all_nodes:
        return True
    return place.node_selector is not None and selects_node(place.node_selector, node)


def selects_node(selector: NodeSelector, node: APINode) -> bool:
    """Whether a term of the selector matches the node.

    Errors:  NodeSelectorError where any term does not parse.
    Follows: v1.36, component-helpers/scheduling/corev1/nodeaffinity/nodeaffinity.go, NewNodeSelector, NodeSelector.Match.
    """
    if error := _error(selector):
        raise NodeSelectorError(f"failed to parse node selector {_go_text(selector)}: {error}")
    return any(_matches(term, node) for term in selector.node_selector_terms)


def _matches(term: NodeSelectorTerm, node: APINode) -> bool:
    # A term without expressions matches no node.
    if not term.match_expressions and not term.match_fields:
        return False
    name, labels = node.metadata.name, node.metadata.labels
    return all(requirement.holds(labels) for requirement in term.match_expressions) and all(
        # The name is the only field of a node; those of a node without a name are not checked.
        not name
        or ((name if requirement.key == "metadata.name" else "") == requirement.values[0])
        is (requirement.operator == "In")
        for requirement in term.match_fields
    )


@lru_cache(maxsize=256)
def _error(selector: NodeSelector) -> str:
    """All errors of the selector, as Kubernetes puts them together."""
    errors = tuple(dict.fromkeys(_errors(selector)))
    return errors[0] if len(errors) == 1 else f"[{', '.join(errors)}]" if errors else ""


def _errors(selector: NodeSelector) -> Iterator[str]:
    """Why the selector does not parse.

    Follows: v1.36, component-helpers/scheduling/corev1/nodeaffinity/nodeaffinity.go, newNodeSelectorTerm;
        apimachinery/pkg/labels/selector.go, NewRequirement.
    """
    for at, term in enumerate(selector.node_selector_terms):
        path = f"nodeSelectorTerms[{at}]"
        for index, requirement in enumerate(term.match_expressions):
            yield from _label_errors(requirement, f"{path}.matchExpressions[{index}]")
        for index, requirement in enumerate(term.match_fields):
            where = f"{path}.matchFields[{index}]"
            if requirement.operator not in _FIELD_OPERATORS:
                yield _unsupported(where, requirement.operator, _FIELD_OPERATORS)
            elif len(requirement.values) != 1:
                yield _invalid(f"{where}.values", requirement.values, "must have one element")


def _label_errors(requirement: NodeSelectorRequirement, path: str) -> Iterator[str]:
    operator, values = requirement.operator, requirement.values
    if operator not in _LABEL_OPERATORS:
        yield _unsupported(path, operator, _LABEL_OPERATORS)
        return
    if rules := label_key_errors(requirement.key):
        yield _invalid(f"{path}.key", requirement.key, "; ".join(rules))
    if operator in ("In", "NotIn") and not values:
        yield _invalid(f"{path}.values", None, "for 'in', 'notin' operators, values set can't be empty")
    if operator in ("Exists", "DoesNotExist") and values:
        rule = "values set must be empty for exists and does not exist"
        yield _invalid(f"{path}.values", values, rule)
    if operator in ("Gt", "Lt"):
        if len(values) != 1:
            rule = "for 'Gt', 'Lt' operators, exactly one value is required"
            yield _invalid(f"{path}.values", values, rule)
        for at, value in enumerate(values):
            if requirement.integer(value) is None:
                rule = "for 'Gt', 'Lt' operators, the value must be an integer"
                yield _invalid(f"{path}.values[{at}]", value, rule)
    for at, value in enumerate(values):
        if rules := label_value_errors(value):
            yield _invalid(f"{path}.values[{at}]", value, "; ".join(rules))


def _unsupported(path: str, operator: str, known: Iterable[str]) -> str:
    names = ", ".join(f'"{name}"' for name in known)
    return f'{path}.operator: Unsupported value: "{operator}": supported values: {names}'


def _invalid(path: str, value: object, rule: str) -> str:
    return f"{path}: Invalid value: {msgspec.json.encode(value).decode()}: {rule}"


def _go_text(selector: NodeSelector) -> str:
    """The selector as Go prints the generated type."""

    def requirements(items: tuple[NodeSelectorRequirement, ...]) -> str:
        texts = (
            f"NodeSelectorRequirement{{Key:{item.key},Operator:{item.operator},Values:[{' '.join(item.values)}],}},"
            for item in items
        )
        return f"[]NodeSelectorRequirement{{{''.join(texts)}}}"

    terms = (
        f"NodeSelectorTerm{{MatchExpressions:{requirements(term.match_expressions)},"
        f"MatchFields:{requirements(term.match_fields)},}},"
        for term in selector.node_selector_terms
    )
    return f"&NodeSelector{{NodeSelectorTerms:[]NodeSelectorTerm{{{''.join(terms)}}},}}"


def nodes_of_devices(
    devices: Iterable[tuple[ResourceSlice, Device]], node: str, *, bound_devices: bool
) -> NodeSelector | None:
    """The nodes that can use all the devices; None: all nodes.

    A device that belongs to one node, or with ``bound_devices`` one that binds to the node, leaves no other node. Otherwise
    all requirements are put together.

    Errors:  NodeSelectorError for a selector with several terms.
    Follows: v1.36, dynamic-resource-allocation/structured/internal/incubating/allocator_incubating.go, createNodeSelector.
    """
    expressions: list[NodeSelectorRequirement] = []
    fields: list[NodeSelectorRequirement] = []
    for piece, device in devices:
        place = device if piece.spec.per_device_node_selection else piece.spec
        if place.node_name is not None or (bound_devices and device.binds_to_node):
            own = NodeSelectorRequirement(key="metadata.name", operator="In", values=(node,))
            return NodeSelector(node_selector_terms=(NodeSelectorTerm(match_fields=(own,)),))
        terms = place.node_selector.node_selector_terms if place.node_selector else ()
        if len(terms) > 1:
            raise NodeSelectorError(f"unsupported ResourceSlice.NodeSelector with {len(terms)} terms")
        for term in terms:
            _add_new(fields, term.match_fields)
            _add_new(expressions, term.match_expressions)
    if not expressions and not fields:
        return None
    term = NodeSelectorTerm(match_expressions=tuple(expressions), match_fields=tuple(fields))
    return NodeSelector(node_selector_terms=(term,))


def _add_new(known: list[NodeSelectorRequirement], more: Iterable[NodeSelectorRequirement]) -> None:
    for requirement in more:
        if not any(
            (old.key, old.operator, set(old.values))
            == (requirement.key, requirement.operator, set(requirement.values))
            for old in known
        ):
            known.append(requirement)
