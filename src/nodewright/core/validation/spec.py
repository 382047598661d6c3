"""A pod as a whole: what the API server has against it."""

from collections.abc import Iterator

from nodewright.core.requests import container_limits, container_requests, with_defaults
from nodewright.core.validation.containers import all_container_violations
from nodewright.core.validation.metadata import label_violations, metadata_violations
from nodewright.core.validation.names import key_rules, subdomain_rules, value_rules
from nodewright.core.validation.resources import container_violations, over_pod_level, pod_level_violations
from nodewright.core.validation.violation import (
    Violation,
    each_invalid,
    forbidden,
    invalid,
    not_supported,
    required,
)
from nodewright.model.objects import (
    NodeSelector,
    Pod,
    PodSpec,
    ResourceRequirements,
    SelectorRequirement,
    Toleration,
)
from nodewright.model.resource_names import in_order

_INT32_MAX = 2**31 - 1
_EFFECTS = ("NoSchedule", "PreferNoSchedule", "NoExecute")
_OPERATORS = ("Equal", "Exists")
_OPERATORS_WITH_NUMBERS = (*_OPERATORS, "Lt", "Gt")
_PREEMPTION_POLICIES = ("PreemptLowerPriority", "Never")
_RESTART_POLICIES = ("Always", "OnFailure", "Never")
_SYSTEMS = ("linux", "windows")


def violations(pod: Pod, *, is_template: bool = False) -> tuple[Violation, ...]:
    """What the API server has against the pod, before it fills in any defaults; empty if it takes it.

    Follows: v1.36, pkg/apis/core/validation/validation.go, ValidatePodCreate; default feature gates.
    Departs: looks at resources, priority, place (selectors, tolerations, host ports) and names alone. Amounts
        that 64 bits cannot hold are refused. The order is fixed where the API server walks maps.

    >>> from nodewright.model.objects import Container, ObjectMeta
    >>> from nodewright.values.quantity import Quantity
    >>> greedy = ResourceRequirements(requests={"cpu": Quantity.parse("2")}, limits={"cpu": Quantity.parse("1")})
    >>> spec = PodSpec(containers=(Container(name="main", resources=greedy),))
    >>> [(one.path, one.rule) for one in violations(Pod(metadata=ObjectMeta(name="web"), spec=spec))]
    [('spec.containers[0].resources.requests', 'must be less than or equal to cpu limit of 1')]
    """
    found = list(
        label_violations(pod.metadata.labels, "metadata.labels")
        if is_template
        else metadata_violations(pod.metadata)
    )
    found.extend(all_container_violations(pod.spec, "spec"))
    if pod.spec.resources is not None:
        found.extend(_pod_level(pod, pod.spec.resources))
    found.extend(_place_violations(pod.spec))
    found.extend(_other_violations(pod.spec))
    return tuple(found)


def _pod_level(pod: Pod, given: ResourceRequirements) -> Iterator[Violation]:
    """What is wrong with `spec.resources`, which are judged after defaults were filled in.

    Follows: v1.36, pkg/apis/core/validation/validation.go, validatePodResources.
    """
    path = "spec.resources"
    if pod.spec.os is not None and pod.spec.os.name == "windows":
        yield forbidden(path, "may not be set for a windows pod")
        return
    if given.claims:
        yield forbidden(f"{path}.claims", "claims may not be set for Resources at pod-level")
    full = with_defaults(pod)
    assert full.spec.resources is not None
    yield from pod_level_violations(full.spec.resources, path)
    yield from over_pod_level(full.spec.resources, container_requests(full), container_limits(full), path)
    for index, container in enumerate(pod.spec.containers):
        for name in sorted(container.resources.limits, key=in_order):
            limit, most = container.resources.limits[name], given.limits.get(name)
            if most is not None and limit > most:
                rule = f"must be less than or equal to pod limits of {most}"
                yield invalid(f"{path}.containers[{index}][{name}].limits", str(limit), rule)


def _place_violations(spec: PodSpec) -> Iterator[Violation]:
    yield from label_violations(spec.node_selector, "spec.nodeSelector")
    affinity = spec.affinity.node_affinity if spec.affinity else None
    wanted = affinity.required_during_scheduling_ignored_during_execution if affinity else None
    if wanted is not None:
        path = "spec.affinity.nodeAffinity.requiredDuringSchedulingIgnoredDuringExecution"
        yield from _selector_violations(wanted, f"{path}.nodeSelectorTerms")
    if spec.node_name:
        yield from each_invalid("spec.nodeName", spec.node_name, subdomain_rules(spec.node_name))
    for index, toleration in enumerate(spec.tolerations):
        yield from _toleration_violations(toleration, f"spec.tolerations[{index}]")


def _selector_violations(selector: NodeSelector, path: str) -> Iterator[Violation]:
    """What is wrong with required node affinity.

    Follows: v1.36, pkg/apis/core/validation/validation.go, ValidateNodeSelector.
    """
    if not selector.node_selector_terms:
        yield required(path, "must have at least one node selector term")
    for number, term in enumerate(selector.node_selector_terms):
        for index, one in enumerate(term.match_expressions):
            yield from _expression_violations(one, f"{path}[{number}].matchExpressions[{index}]")
        for index, one in enumerate(term.match_fields):
            yield from _field_violations(one, f"{path}[{number}].matchFields[{index}]")


def _expression_violations(one: SelectorRequirement, path: str) -> Iterator[Violation]:
    if one.operator in ("In", "NotIn"):
        if not one.values:
            yield required(f"{path}.values", "must be specified when `operator` is 'In' or 'NotIn'")
    elif one.operator in ("Exists", "DoesNotExist"):
        if one.values:
            rule = "may not be specified when `operator` is 'Exists' or 'DoesNotExist'"
            yield forbidden(f"{path}.values", rule)
    elif one.operator in ("Gt", "Lt"):
        if len(one.values) != 1:
            yield required(f"{path}.values", "must be specified single value when `operator` is 'Lt' or 'Gt'")
    else:
        yield invalid(f"{path}.operator", one.operator, "not a valid selector operator")
    yield from each_invalid(f"{path}.key", one.key, key_rules(one.key))
    for index, value in enumerate(one.values):
        yield from each_invalid(f"{path}.values[{index}]", value, value_rules(value))


def _field_violations(one: SelectorRequirement, path: str) -> Iterator[Violation]:
    if one.operator not in ("In", "NotIn"):
        yield invalid(f"{path}.operator", one.operator, "not a valid selector operator")
    elif len(one.values) != 1:
        rule = "must be only one value when `operator` is 'In' or 'NotIn' for node field selector"
        yield required(f"{path}.values", rule)
    if one.key != "metadata.name":
        yield invalid(f"{path}.key", one.key, "not a valid field selector key")
        return
    for index, value in enumerate(one.values):
        yield from each_invalid(f"{path}.values[{index}]", value, subdomain_rules(value))


def _toleration_violations(one: Toleration, path: str) -> Iterator[Violation]:
    """What is wrong with a toleration.

    Follows: v1.36, pkg/apis/core/validation/validation.go, ValidateTolerations.
    """
    if one.key:
        yield from each_invalid(f"{path}.key", one.key, key_rules(one.key))
    elif one.operator != "Exists":
        rule = 'operator must be Exists when `key` is empty, which means "match all values and all keys"'
        yield invalid(f"{path}.operator", one.operator, rule)
    if one.toleration_seconds is not None and one.effect != "NoExecute":
        rule = "effect must be 'NoExecute' when `tolerationSeconds` is set"
        yield invalid(f"{path}.effect", one.effect, rule)
    if one.operator in ("Equal", ""):
        if rules := value_rules(one.value):
            yield invalid(f"{path}.operator", one.value, ";".join(rules))
    elif one.operator == "Exists":
        if one.value:
            yield invalid(f"{path}.operator", one.value, "value must be empty when `operator` is 'Exists'")
    else:
        # Lt and Gt are named among the supported ones, but taken only with the gate that is off.
        known = _OPERATORS_WITH_NUMBERS if one.operator in ("Lt", "Gt") else _OPERATORS
        yield not_supported(f"{path}.operator", one.operator, known)
    if one.effect and one.effect not in _EFFECTS:
        yield not_supported(f"{path}.effect", one.effect, _EFFECTS)


def _other_violations(spec: PodSpec) -> Iterator[Violation]:
    if spec.restart_policy and spec.restart_policy not in _RESTART_POLICIES:
        yield not_supported("spec.restartPolicy", spec.restart_policy, _RESTART_POLICIES)
    deadline = spec.active_deadline_seconds
    if deadline is not None and not 1 <= deadline <= _INT32_MAX:
        rule = f"must be between 1 and {_INT32_MAX}, inclusive"
        yield invalid("spec.activeDeadlineSeconds", deadline, rule)
    for field, name in (
        ("priorityClassName", spec.priority_class_name or None),
        ("runtimeClassName", spec.runtime_class_name),
    ):
        if name is not None:
            yield from each_invalid(f"spec.{field}", name, subdomain_rules(name))
    policy = spec.preemption_policy
    if policy == "":
        yield required("spec.preemptionPolicy")
    elif policy is not None and policy not in _PREEMPTION_POLICIES:
        yield not_supported("spec.preemptionPolicy", policy, _PREEMPTION_POLICIES)
    overhead = ResourceRequirements(limits=spec.overhead)
    yield from container_violations(overhead, "spec.overhead", frozenset())
    if spec.os is not None and not spec.os.name:
        yield required("spec.os.name")
    elif spec.os is not None and spec.os.name not in _SYSTEMS:
        yield not_supported("spec.os", spec.os.name, _SYSTEMS)
