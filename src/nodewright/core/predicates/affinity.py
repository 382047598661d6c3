"""Do the node's labels suit the pod? Node selector and required node affinity."""

import re
from collections.abc import Mapping

from nodewright.model.objects import NodeSelectorTerm, PodSpec, SelectorRequirement
from nodewright.model.reasons import LabelMissing, NodeAffinityMismatch, RequirementUnmet, TermUnmet
from nodewright.values.names import is_label_key, is_label_value
from nodewright.values.units import fits_int64

_INTEGER = re.compile(r"[+-]?[0-9]{1,4000}", re.ASCII)


def affinity_mismatch(spec: PodSpec, node: str, labels: Mapping[str, str]) -> NodeAffinityMismatch | None:
    """What the pod wants of the node's labels and does not find; None: all is well.

    Follows: v1.36, component-helpers/scheduling/corev1/nodeaffinity/nodeaffinity.go, RequiredNodeAffinity.
    """
    missing = tuple(
        LabelMissing(key=key, wanted=wanted, actual=labels.get(key))
        for key, wanted in spec.node_selector.items()
        if labels.get(key) != wanted
    )
    unmet = _unmet_terms(spec, node, labels)
    if not missing and unmet is None:
        return None
    return NodeAffinityMismatch(node=node, selector=missing, terms=unmet or ())


def _unmet_terms(spec: PodSpec, node: str, labels: Mapping[str, str]) -> tuple[TermUnmet, ...] | None:
    """All the required terms if none holds; None if one does or none is required."""
    affinity = spec.affinity.node_affinity if spec.affinity else None
    required = affinity.required_during_scheduling_ignored_during_execution if affinity else None
    if required is None:
        return None
    terms = []
    for index, term in enumerate(required.node_selector_terms):
        unmet = _unmet(term, node, labels)
        # A term without expressions holds nowhere.
        if not unmet and (term.match_expressions or term.match_fields):
            return None
        terms.append(TermUnmet(index=index, unmet=unmet))
    return tuple(terms)


def _unmet(term: NodeSelectorTerm, node: str, labels: Mapping[str, str]) -> tuple[RequirementUnmet, ...]:
    """The expressions of a term that do not hold; one that cannot be read spoils the term."""
    unmet = []
    for one in term.match_expressions:
        invalid = not _is_label_requirement(one)
        if invalid or not _holds(one, labels):
            unmet.append(_described(one, labels.get(one.key), invalid=invalid))
    for one in term.match_fields:
        # The name is the only field of a node that there is; any other reads as empty.
        actual = node if one.key == "metadata.name" else ""
        invalid = one.operator not in ("In", "NotIn") or len(one.values) != 1
        # A node without a name has no fields, and then they are not looked at.
        if invalid or (node and (actual == one.values[0]) != (one.operator == "In")):
            unmet.append(_described(one, actual or None, invalid=invalid, on_field=True))
    return tuple(unmet)


def _described(
    one: SelectorRequirement, actual: str | None, *, invalid: bool, on_field: bool = False
) -> RequirementUnmet:
    return RequirementUnmet(
        key=one.key,
        operator=one.operator,
        values=one.values,
        actual=actual,
        on_field=on_field,
        invalid=invalid,
    )


def _is_label_requirement(one: SelectorRequirement) -> bool:
    """Whether Kubernetes can read the expression.

    Follows: v1.36, apimachinery/pkg/labels/selector.go, NewRequirement.
    """
    match one.operator:
        case "In" | "NotIn":
            sound = bool(one.values)
        case "Exists" | "DoesNotExist":
            sound = not one.values
        case "Gt" | "Lt":
            sound = len(one.values) == 1 and _integer(one.values[0]) is not None
        case _:
            sound = False
    return sound and is_label_key(one.key) and all(map(is_label_value, one.values))


def _holds(one: SelectorRequirement, labels: Mapping[str, str]) -> bool:
    """Whether a sound expression holds.

    Follows: v1.36, apimachinery/pkg/labels/selector.go, Requirement.Matches.
    """
    actual = labels.get(one.key)
    match one.operator:
        case "In":
            return actual in one.values
        case "NotIn":
            return actual not in one.values
        case "Exists":
            return actual is not None
        case "DoesNotExist":
            return actual is None
        case _:
            return _compares(one.operator, actual or "", one.values[0])


def _compares(operator: str, actual: str, bound: str) -> bool:
    number, limit = _integer(actual), _integer(bound)
    if number is None or limit is None:
        return False
    return number > limit if operator == "Gt" else number < limit


def _integer(text: str) -> int | None:
    """The number as Go reads it into 64 bits."""
    if _INTEGER.fullmatch(text) is None:
        return None
    number = int(text)
    return number if fits_int64(number) else None
