"""Label selectors of workloads: what is wrong with them, what they select, and how the API server prints them."""

from collections.abc import Iterator, Mapping
from typing import Any

from nodewright.engine.admission.validation.placement import label_selector_violations
from nodewright.engine.admission.validation.violation import Violation, invalid, required

_EMPTY = {
    "Deployment": "deployment", "ReplicaSet": "deployment", "StatefulSet": "statefulset", "DaemonSet": "daemonset",
}  # fmt: skip
_NO_TEMPLATE_CHECK = {
    "Deployment": "invalid label selector",
    "ReplicaSet": "invalid label selector",
    "StatefulSet": "",
}

_REQUIRES_SELECTOR = tuple(_NO_TEMPLATE_CHECK)

WITH_SELECTORS = (*_EMPTY, "ReplicationController")
"""The kinds whose selector has to select the pods of the template."""


def selector_violations(kind: str, spec: Fields, path: str) -> Iterator[Violation]:
    """The violations in the selector of a workload, and in the labels of its template.

    An absent selector selects nothing, so that the template does not match it either.
    Follows: v1.36, pkg/apis/apps/validation/validation.go, ValidateDeploymentSpec, ValidateReplicaSetSpec,
        ValidateStatefulSetSpec, ValidateDaemonSetSpec; pkg/apis/core/validation/validation.go,
        ValidateReplicationControllerSpec, whose selector is a map of labels and by default those of the template.
    """
    selector: Fields | None = spec.get("selector")
    labels = template_labels(spec)
    if kind == "ReplicationController":
        if not (selector or labels):
            yield required(f"{path}.selector")
        elif selector and not selects({"matchLabels": selector}, labels):
            yield mismatch(spec, path)
        return
    if selector is None:
        if kind in _REQUIRES_SELECTOR:
            yield required(f"{path}.selector")
        yield mismatch(spec, path)
        return
    violations = [*label_selector_violations(selector, f"{path}.selector")]
    yield from violations
    if violations and kind in _NO_TEMPLATE_CHECK:
        yield invalid(f"{path}.selector", shown_selector(selector), _NO_TEMPLATE_CHECK[kind])
    if not selector.get("matchLabels") and not selector.get("matchExpressions"):
        yield invalid(f"{path}.selector", {}, f"empty selector is invalid for {_EMPTY[kind]}")
    elif not violations and not selects(selector, labels):
        yield mismatch(spec, path)


def is_template_judged(kind: str, spec: Fields) -> bool:
    """Whether the API server gets as far as the template: it does not where a selector cannot be parsed."""
    if kind == "ReplicationController":
        return spec.get("template") is not None
    if kind not in _NO_TEMPLATE_CHECK:
        return True
    return not any(label_selector_violations(spec.get("selector"), ""))


def template_labels(spec: Fields) -> Mapping[str, str]:
    """The labels of the template."""
    return _written_labels(spec) or {}


def _written_labels(spec: Fields) -> Mapping[str, str] | None:
    labels: Mapping[str, str] | None = ((spec.get("template") or {}).get("metadata") or {}).get("labels")
    return labels


def mismatch(spec: Fields, path: str) -> Violation:
    """The selector does not select the template's own pods."""
    labels = _written_labels(spec)
    shown = () if labels is None else dict(sorted(labels.items()))
    return invalid(f"{path}.template.metadata.labels", shown, "`selector` does not match template `labels`")


def selects(selector: Fields, labels: Mapping[str, str]) -> bool:
    """Whether a valid label selector matches the labels."""
    if any(labels.get(key) != value for key, value in (selector.get("matchLabels") or {}).items()):
        return False
    for expression in selector.get("matchExpressions") or ():
        key, values = expression["key"], expression.get("values") or ()
        matches = {
            "In": labels.get(key) in values,
            "NotIn": labels.get(key) not in values,
            "Exists": key in labels,
            "DoesNotExist": key not in labels,
        }
        if not matches[expression["operator"]]:
            return False
    return True


def shown_selector(selector: Fields) -> dict[str, Any]:
    """The selector as the API server prints it: the fields in its order, those without content left out."""
    shown: dict[str, Any] = {}
    if labels := selector.get("matchLabels"):
        shown["matchLabels"] = dict(sorted(labels.items()))
    if expressions := selector.get("matchExpressions"):
        shown["matchExpressions"] = [
            {
                "key": expression.get("key") or "",
                "operator": expression.get("operator") or "",
                **({"values": list(values)} if (values := expression.get("values")) else {}),
            }
            for expression in expressions
        ]
    return shown
