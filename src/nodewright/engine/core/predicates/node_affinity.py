"""Node selector and required node affinity; whether the DaemonSet controller creates a pod for the node."""

from collections.abc import Mapping, Sequence

from nodewright.model.kubernetes.name_validation import is_label_key, is_label_value
from nodewright.model.kubernetes.objects import (
    NodeSelectorRequirement,
    NodeSelectorTerm,
    PodSpec,
    Taint,
    untolerated,
)
from nodewright.model.reasons.predicates import (
    LabelMissing,
    NodeAffinityMismatch,
    RequirementUnmet,
    TermUnmet,
    UntoleratedTaints,
)


def affinity_mismatch(spec: PodSpec, node: str, labels: Mapping[str, str]) -> NodeAffinityMismatch | None:
    """The node selector entries and affinity terms that the node's labels do not meet; None if all are met.

    Follows: v1.36, component-helpers/scheduling/corev1/nodeaffinity/nodeaffinity.go, RequiredNodeAffinity.
    """
    if not spec.node_selector and spec.affinity is None:
        return None
    missing = tuple(
        [
            LabelMissing(key=key, wanted=wanted, actual=labels.get(key))
            for key, wanted in spec.node_selector.items()
            if labels.get(key) != wanted
        ]
    )
    unmet = _unmet_affinity_terms(spec, node, labels)
    if not missing and unmet is None:
        return None
    return NodeAffinityMismatch(node=node, selector=missing, terms=unmet or ())


def daemon_pod_obstacle(
    spec: PodSpec, node: str, labels: Mapping[str, str], taints: Sequence[Taint]
) -> NodeAffinityMismatch | UntoleratedTaints | None:
    """Why a DaemonSet with this pod spec creates no pod for the node; None: it creates one.

    Follows: v1.36, pkg/controller/daemon/daemon_controller.go, NodeShouldRunDaemonPod.
    """
    if repelling := untolerated(taints, spec.tolerations):
        return UntoleratedTaints(taints=repelling)
    return affinity_mismatch(spec, node, labels)


def _unmet_affinity_terms(
    spec: PodSpec, node: str, labels: Mapping[str, str]
) -> tuple[TermUnmet, ...] | None:
    """All required terms if none holds; None if one holds or none is required."""
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
    """The expressions of a term that do not hold; an invalid expression fails the term."""
    unmet = []
    for requirement in term.match_expressions:
        invalid = not _is_label_requirement(requirement)
        if invalid or not requirement.holds(labels):
            unmet.append(_requirement_unmet(requirement, labels.get(requirement.key), invalid=invalid))
    for requirement in term.match_fields:
        # The name is the only field that a node has; any other is empty.
        actual = node if requirement.key == "metadata.name" else ""
        invalid = requirement.operator not in ("In", "NotIn") or len(requirement.values) != 1
        # The fields of a node without a name are not checked.
        if invalid or (node and (actual == requirement.values[0]) != (requirement.operator == "In")):
            unmet.append(_requirement_unmet(requirement, actual or None, invalid=invalid, on_field=True))
    return tuple(unmet)


def _requirement_unmet(
    requirement: NodeSelectorRequirement, actual: str | None, *, invalid: bool, on_field: bool = False
) -> RequirementUnmet:
    return RequirementUnmet(
        key=requirement.key,
        operator=requirement.operator,
        values=requirement.values,
        actual=actual,
        on_field=on_field,
        invalid=invalid,
    )


def _is_label_requirement(requirement: NodeSelectorRequirement) -> bool:
    """Whether the expression is valid.

    Follows: v1.36, apimachinery/pkg/labels/selector.go, NewRequirement.
    """
    match requirement.operator:
        case "In" | "NotIn":
            is_valid = bool(requirement.values)
        case "Exists" | "DoesNotExist":
            is_valid = not requirement.values
        case "Gt" | "Lt":
            is_valid = len(requirement.values) == 1 and requirement.integer(requirement.values[0]) is not None
        case _:
            is_valid = False
    return is_valid and is_label_key(requirement.key) and all(map(is_label_value, requirement.values))
