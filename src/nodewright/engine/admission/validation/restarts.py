"""Validation of what restarts a container: its restart policy and rules, and its resize policies."""

from collections.abc import Iterator, Mapping, Sequence
from typing import Any

from nodewright.engine.admission.validation.violation import (
    Violation,
    duplicate,
    forbidden,
    invalid,
    not_supported,
    required,
    too_many,
)
from nodewright.model.kubernetes.objects import Container, PodSpec
from nodewright.model.kubernetes.pod_spec_fields import ContainerResizePolicy

_JOBS, _JOB_POLICIES = ("Job", "CronJob"), ("OnFailure", "Never")
_NAMES_IN_MESSAGES = {
    "Deployment": "ReplicaSet",
    **{kind: kind for kind in ("ReplicaSet", "StatefulSet", "DaemonSet", "ReplicationController")},
}
_POLICIES = ("Always", "Never", "OnFailure")
_ACTIONS = ("Restart", "RestartAllContainers")
_EXIT_CODE_OPERATORS = ("In", "NotIn")
_MOST_RULES, _MOST_EXIT_CODES = 20, 255
_RESIZABLE = ("cpu", "memory")
INIT_RESTART_RULE = "must not be set to 'RestartContainer' for non-sidecar initContainers"
"""A rule for new pods; those that break it from before it may be changed."""
_RESIZE_POLICIES = ("NotRequired", "RestartContainer")


def template_restart_violations(kind: str, spec: PodSpec, path: str) -> Iterator[Violation]:
    """The violations in a template of what the kind of the workload says about the end of its pods.

    Follows: v1.36, pkg/apis/apps/validation/validation.go, ValidatePodTemplateSpecForReplicaSet,
        ValidateStatefulSetSpec, ValidateDaemonSetSpec; pkg/apis/core/validation/validation.go,
        ValidatePodTemplateSpecForRC; pkg/apis/batch/validation/validation.go, validateJobSpec.
    """
    policy, field = spec.restart_policy, f"{path}.restartPolicy"
    if kind in _JOBS:
        if policy in ("", "Always"):  # The default is a policy that no Job can have.
            yield required(field, 'valid values: "OnFailure", "Never"')
        elif policy not in _JOB_POLICIES:
            yield not_supported(field, policy, _JOB_POLICIES)
        return
    owner = _NAMES_IN_MESSAGES.get(kind)
    if owner is None:
        return
    if policy not in ("", "Always"):
        yield not_supported(field, policy, ("Always",))
    if spec.active_deadline_seconds is not None:
        rule = f"activeDeadlineSeconds in {owner} is not Supported"
        yield forbidden(f"{path}.activeDeadlineSeconds", rule)


def restart_violations(container: Container, path: str, *, is_init: bool) -> Iterator[Violation]:
    """The violations in the container's restart policy and restart rules.

    Follows: v1.36, pkg/apis/core/validation/validation.go, validateContainerRestartPolicy and
        validateInitContainerRestartPolicy.
    """
    policy, rules = container.restart_policy, container.restart_policy_rules
    if policy is None:
        if rules:
            rule = "must specify restartPolicy when restart rules are used"
            yield required(f"{path}.restartPolicy", rule)
        if is_init:
            return
    elif policy not in _POLICIES:
        yield not_supported(f"{path}.restartPolicy", policy, _POLICIES)
    rules_path = f"{path}.restartPolicyRules"
    if len(rules) > _MOST_RULES:
        yield too_many(rules_path, len(rules), _MOST_RULES)
    for index, fields in enumerate(rules):
        yield from _rule_violations(fields, f"{rules_path}[{index}]")


def _rule_violations(fields: Mapping[str, Any], path: str) -> Iterator[Violation]:
    action = fields.get("action") or ""
    if action not in _ACTIONS:
        yield not_supported(f"{path}.action", action, _ACTIONS)
    exit_codes = fields.get("exitCodes")
    if exit_codes is None:
        yield required(f"{path}.exitCodes", "must be specified")
        return
    operator, values = exit_codes.get("operator") or "", exit_codes.get("values") or ()
    if operator not in _EXIT_CODE_OPERATORS:
        yield not_supported(f"{path}.exitCodes.operator", operator, _EXIT_CODE_OPERATORS)
    if len(values) > _MOST_EXIT_CODES:
        yield too_many(f"{path}.exitCodes.values", len(values), _MOST_EXIT_CODES)


def resize_policy_violations(
    policies: Sequence[ContainerResizePolicy], path: str, pod_restart_policy: str
) -> Iterator[Violation]:
    """The violations in the container's resize policies.

    Follows: v1.36, pkg/apis/core/validation/validation.go, validateResizePolicy.
    """
    seen: set[str] = set()
    for index, policy in enumerate(policies):
        if policy.resource_name in seen:
            yield duplicate(f"{path}[{index}]", policy.resource_name)
        seen.add(policy.resource_name)
        for value, known in (
            (policy.resource_name, _RESIZABLE),
            (policy.restart_policy, _RESIZE_POLICIES),
        ):
            if not value:
                yield required(path)
            elif value not in known:
                yield not_supported(path, value, known)
        if pod_restart_policy == "Never" and policy.restart_policy != "NotRequired":
            rule = "must be 'NotRequired' when pod `restartPolicy` is 'Never'"
            yield invalid(path, policy.restart_policy, rule)


def init_resize_policy_violations(container: Container, path: str) -> Iterator[Violation]:
    """The violations in the resize policies of an init container, in addition to those of any container."""
    for index, policy in enumerate(() if container.is_sidecar else container.resize_policy):
        if policy.restart_policy == "RestartContainer":
            field = f"{path}.resizePolicy[{index}].restartPolicy"
            yield invalid(field, policy.restart_policy, INIT_RESTART_RULE)
