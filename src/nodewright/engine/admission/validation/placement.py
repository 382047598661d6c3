"""Validation of affinity to nodes and pods, of topology spread constraints, and of tolerations."""

from collections.abc import Iterator, Mapping, Sequence
from typing import Any, TypeAlias

from nodewright.engine.admission.validation.violation import (
    Violation,
    duplicate,
    each_invalid,
    forbidden,
    invalid,
    label_violations,
    list_violations,
    not_supported,
    required,
    unless_supported,
)
from nodewright.model.kubernetes.name_validation import (
    dns1123_label_errors,
    dns1123_subdomain_errors,
    label_key_errors,
    label_value_errors,
)
from nodewright.model.kubernetes.objects import (
    TAINT_EFFECTS,
    Affinity,
    NodeAffinity,
    NodeSelector,
    NodeSelectorRequirement,
    Toleration,
)

Fields: TypeAlias = Mapping[str, Any]
Labels: TypeAlias = Mapping[str, str]

_REQUIRED = "requiredDuringSchedulingIgnoredDuringExecution"
_PREFERRED = "preferredDuringSchedulingIgnoredDuringExecution"
_ACTIONS = ("DoNotSchedule", "ScheduleAnyway")
_NODE_POLICIES = ("Honor", "Ignore")
_OPERATORS = ("Equal", "Exists")
_OPERATORS_WITH_NUMBERS = (*_OPERATORS, "Lt", "Gt")
_NO_OPERATOR = "not a valid selector operator"
_VALUES_NEEDED = "must be specified when `operator` is 'In' or 'NotIn'"
_NO_VALUES = "may not be specified when `operator` is 'Exists' or 'DoesNotExist'"


def affinity_violations(affinity: Affinity, labels: Labels, path: str) -> Iterator[Violation]:
    """The violations in the affinity of a pod with these labels; a template gives none.

    Follows: v1.36, pkg/apis/core/validation/validation.go, validateAffinity.
    """
    if affinity.node_affinity is not None:
        yield from _node_affinity_violations(affinity.node_affinity, f"{path}.nodeAffinity")
    for name, terms in (
        ("podAffinity", affinity.pod_affinity),
        ("podAntiAffinity", affinity.pod_anti_affinity),
    ):
        for index, term in enumerate((terms or {}).get(_REQUIRED) or ()):
            yield from _pod_term_violations(term, labels, f"{path}.{name}.{_REQUIRED}[{index}]")
        for index, weighted in enumerate((terms or {}).get(_PREFERRED) or ()):
            term_path = f"{path}.{name}.{_PREFERRED}[{index}]"
            yield from _weight_violations(weighted, f"{term_path}.weight")
            term = weighted.get("podAffinityTerm") or {}
            yield from _pod_term_violations(term, labels, f"{term_path}.podAffinityTerm")


def _weight_violations(weighted: Fields, path: str) -> Iterator[Violation]:
    weight = weighted.get("weight") or 0
    if not 1 <= weight <= 100:
        yield invalid(path, weight, "must be in the range 1-100")


# ---------------------------------------------------------------- nodes


def _node_affinity_violations(affinity: NodeAffinity, path: str) -> Iterator[Violation]:
    terms = affinity.required_during_scheduling_ignored_during_execution
    if terms is not None:
        yield from node_selector_violations(terms, f"{path}.{_REQUIRED}.nodeSelectorTerms")
    for index, weighted in enumerate(affinity.preferred_during_scheduling_ignored_during_execution):
        term_path = f"{path}.{_PREFERRED}[{index}]"
        yield from _weight_violations(weighted, f"{term_path}.weight")
        term, term_path = weighted.get("preference") or {}, f"{term_path}.preference"
        for kind, check in (("matchExpressions", _expression_violations), ("matchFields", _field_violations)):
            for number, fields in enumerate(term.get(kind) or ()):
                # Invalid label values are allowed here: they match no node.
                yield from check(_requirement(fields), f"{term_path}.{kind}[{number}]", judges_values=False)


def _requirement(fields: Fields) -> NodeSelectorRequirement:
    return NodeSelectorRequirement(
        key=fields.get("key") or "",
        operator=fields.get("operator") or "",
        values=tuple(fields.get("values") or ()),
    )


def node_selector_violations(selector: NodeSelector, path: str) -> Iterator[Violation]:
    """The violations in required node affinity.

    Follows: v1.36, pkg/apis/core/validation/validation.go, ValidateNodeSelector.
    """
    if not selector.node_selector_terms:
        yield required(path, "must have at least one node selector term")
    for number, term in enumerate(selector.node_selector_terms):
        expressions, fields = f"{path}[{number}].matchExpressions", f"{path}[{number}].matchFields"
        yield from list_violations(_expression_violations, term.match_expressions, expressions)
        yield from list_violations(_field_violations, term.match_fields, fields)


def _expression_violations(
    requirement: NodeSelectorRequirement, path: str, *, judges_values: bool = True
) -> Iterator[Violation]:
    if requirement.operator in ("Gt", "Lt"):
        if len(requirement.values) != 1:
            yield required(f"{path}.values", "must be specified single value when `operator` is 'Lt' or 'Gt'")
    else:
        yield from _operator_violations(requirement.operator, requirement.values, path)
    yield from each_invalid(f"{path}.key", requirement.key, label_key_errors(requirement.key))
    if judges_values:
        yield from _value_violations(requirement.values, path)


def _operator_violations(operator: str, values: Sequence[str], path: str) -> Iterator[Violation]:
    if operator in ("In", "NotIn"):
        if not values:
            yield required(f"{path}.values", _VALUES_NEEDED)
    elif operator in ("Exists", "DoesNotExist"):
        if values:
            yield forbidden(f"{path}.values", _NO_VALUES)
    else:
        yield invalid(f"{path}.operator", operator, _NO_OPERATOR)


def _value_violations(values: Sequence[str], path: str) -> Iterator[Violation]:
    for index, value in enumerate(values):
        yield from each_invalid(f"{path}.values[{index}]", value, label_value_errors(value))


def _field_violations(
    requirement: NodeSelectorRequirement, path: str, *, judges_values: bool = True
) -> Iterator[Violation]:
    del judges_values  # names of nodes are always judged
    if requirement.operator not in ("In", "NotIn"):
        yield invalid(f"{path}.operator", requirement.operator, _NO_OPERATOR)
    elif len(requirement.values) != 1:
        rule = "must be only one value when `operator` is 'In' or 'NotIn' for node field selector"
        yield required(f"{path}.values", rule)
    if requirement.key != "metadata.name":
        yield invalid(f"{path}.key", requirement.key, "not a valid field selector key")
        return
    for index, value in enumerate(requirement.values):
        yield from each_invalid(f"{path}.values[{index}]", value, dns1123_subdomain_errors(value))


# ---------------------------------------------------------------- pods


def _pod_term_violations(term: Fields, labels: Labels, path: str) -> Iterator[Violation]:
    """The violations in a term of pod affinity.

    Follows: v1.36, pkg/apis/core/validation/validation.go, validatePodAffinityTerm.
    """
    term = _with_own_labels(term, labels)
    for name in ("labelSelector", "namespaceSelector"):
        yield from label_selector_violations(term.get(name), f"{path}.{name}")
    for namespace in term.get("namespaces") or ():
        yield from each_invalid(f"{path}.namespace", namespace, dns1123_label_errors(namespace))
    yield from _label_key_list_violations(term, path)
    topology_key = term.get("topologyKey") or ""
    if not topology_key:
        yield required(f"{path}.topologyKey", "can not be empty")
    yield from each_invalid(f"{path}.topologyKey", topology_key, label_key_errors(topology_key))


def label_selector_violations(selector: Fields | None, path: str) -> Iterator[Violation]:
    """The violations in a label selector.

    Follows: v1.36, apimachinery/pkg/apis/meta/v1/validation/validation.go, ValidateLabelSelector.
    """
    if selector is None:
        return
    yield from label_violations(selector.get("matchLabels") or {}, f"{path}.matchLabels")
    for index, fields in enumerate(selector.get("matchExpressions") or ()):
        requirement, expression = _requirement(fields), f"{path}.matchExpressions[{index}]"
        yield from _operator_violations(requirement.operator, requirement.values, expression)
        yield from each_invalid(f"{expression}.key", requirement.key, label_key_errors(requirement.key))
        yield from _value_violations(requirement.values, expression)


def _with_own_labels(term: Fields, labels: Labels) -> Fields:
    """The term or constraint whose selector has the pod's own labels, as the API server adds them before it validates.

    Follows: v1.36, pkg/registry/core/pod/strategy.go, applyLabelKeysToLabelSelector.
    """
    selector = term.get("labelSelector")
    added = [
        {"key": key, "operator": operator, "values": [labels[key]]}
        for name, operator in (("matchLabelKeys", "In"), ("mismatchLabelKeys", "NotIn"))
        for key in term.get(name) or ()
        if key in labels
    ]
    if selector is None or not added:
        return term
    expressions = [*(selector.get("matchExpressions") or ()), *added]
    return {**term, "labelSelector": {**selector, "matchExpressions": expressions}}


def _label_key_list_violations(term: Fields, path: str) -> Iterator[Violation]:
    """The violations in `matchLabelKeys` and `mismatchLabelKeys`, where the selector has the pod's own labels.

    Follows: v1.36, pkg/apis/core/validation/validation.go, ValidateMatchLabelKeysAndMismatchLabelKeys.
    """
    selector = term.get("labelSelector")
    keys, other_keys = term.get("matchLabelKeys") or (), term.get("mismatchLabelKeys") or ()
    for name, listed in (("matchLabelKeys", keys), ("mismatchLabelKeys", other_keys)):
        if listed and selector is None:
            yield forbidden(f"{path}.{name}", "must not be specified when labelSelector is not set")
        else:
            for index, key in enumerate(listed):
                yield from each_invalid(f"{path}.{name}[{index}]", key, label_key_errors(key))
    if selector is not None:
        seen = set(selector.get("matchLabels") or {})
        for key in (fields.get("key") or "" for fields in selector.get("matchExpressions") or ()):
            if key in seen and key in keys:
                index = max(index for index, listed_key in enumerate(keys) if listed_key == key)
                yield invalid(f"{path}[{index}]", key, "exists in both matchLabelKeys and labelSelector")
            seen.add(key)
    for index, key in enumerate(keys):
        if key in other_keys:
            rule = "exists in both matchLabelKeys and mismatchLabelKeys"
            yield invalid(f"{path}.matchLabelKeys[{index}]", key, rule)


# ---------------------------------------------------------------- topology spread


def topology_spread_violations(
    constraints: Sequence[Fields], labels: Labels, path: str
) -> Iterator[Violation]:
    """The violations in the topology spread constraints of a pod with these labels; a template gives none.

    Follows: v1.36, pkg/apis/core/validation/validation.go, validateTopologySpreadConstraints.
    """
    pairs = [(each.get("topologyKey") or "", each.get("whenUnsatisfiable") or "") for each in constraints]
    for index, constraint in enumerate(constraints):
        each_path = f"{path}[{index}]"
        topology_key, action = pairs[index]
        if (skew := constraint.get("maxSkew") or 0) <= 0:
            yield invalid(f"{each_path}.maxSkew", skew, "must be greater than zero")
        if not topology_key:
            yield required(f"{each_path}.topologyKey", "can not be empty")
        yield from unless_supported(f"{each_path}.whenUnsatisfiable", action, _ACTIONS)
        if pairs[index] in pairs[index + 1 :]:
            pair_path = f"{each_path}.{{topologyKey, whenUnsatisfiable}}"
            yield duplicate(pair_path, f"{{{topology_key}, {action}}}")
        yield from _min_domains_violations(constraint.get("minDomains"), action, f"{each_path}.minDomains")
        for name in ("nodeAffinityPolicy", "nodeTaintsPolicy"):
            yield from unless_supported(f"{each_path}.{name}", constraint.get(name), _NODE_POLICIES)
        merged = _with_own_labels({**constraint, "mismatchLabelKeys": ()}, labels)
        yield from _label_key_list_violations(merged, each_path)
        yield from label_selector_violations(merged.get("labelSelector"), f"{each_path}.labelSelector")


def _min_domains_violations(min_domains: int | None, action: str, path: str) -> Iterator[Violation]:
    if min_domains is None:
        return
    if min_domains <= 0:
        yield invalid(path, min_domains, "must be greater than zero")
    if action != "DoNotSchedule":
        rule = f"can only use minDomains if whenUnsatisfiable=DoNotSchedule, not {action}"
        yield invalid(path, min_domains, rule)


# ---------------------------------------------------------------- tolerations


def toleration_violations(toleration: Toleration, path: str) -> Iterator[Violation]:
    """The violations in a toleration.

    Follows: v1.36, pkg/apis/core/validation/validation.go, ValidateTolerations.
    """
    if toleration.key:
        yield from each_invalid(f"{path}.key", toleration.key, label_key_errors(toleration.key))
    elif toleration.operator != "Exists":
        rule = 'operator must be Exists when `key` is empty, which means "match all values and all keys"'
        yield invalid(f"{path}.operator", toleration.operator, rule)
    if toleration.toleration_seconds is not None and toleration.effect != "NoExecute":
        rule = "effect must be 'NoExecute' when `tolerationSeconds` is set"
        yield invalid(f"{path}.effect", toleration.effect, rule)
    if toleration.operator in ("Equal", ""):
        if rules := label_value_errors(toleration.value):
            yield invalid(f"{path}.operator", toleration.value, ";".join(rules))
    elif toleration.operator == "Exists":
        if toleration.value:
            yield invalid(
                f"{path}.operator", toleration.value, "value must be empty when `operator` is 'Exists'"
            )
    else:
        # Lt and Gt are listed as supported, but accepted only with a gate that is off by default.
        known = _OPERATORS_WITH_NUMBERS if toleration.operator in ("Lt", "Gt") else _OPERATORS
        yield not_supported(f"{path}.operator", toleration.operator, known)
    yield from unless_supported(f"{path}.effect", toleration.effect or None, TAINT_EFFECTS)
