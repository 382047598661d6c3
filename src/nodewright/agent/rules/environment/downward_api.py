"""The downward API: a pod's fields and its containers' resources."""

import math
from collections.abc import Mapping
from typing import Any

from msgspec.structs import replace

from nodewright.agent.rules.value_sources import ReferenceSources, UnresolvedReference
from nodewright.model.kubernetes.field_labels import SUBSCRIPTED_FIELDS, field_label_error, split_subscript
from nodewright.model.kubernetes.name_validation import is_label_key
from nodewright.model.kubernetes.objects import Container, Pod, ResourceList
from nodewright.model.values.golang import quoted
from nodewright.model.values.quantity import ZERO, Quantity, QuantityError

_DEFAULTED = ("cpu", "memory", "ephemeral-storage")


def env_field(reference: Mapping[str, Any], pod: Pod, sources: ReferenceSources) -> str | UnresolvedReference:
    """The value of a variable with a fieldRef.

    Follows: v1.36, pkg/kubelet/kubelet_pods.go, podFieldSelectorRuntimeValue;
        pkg/apis/core/pods/helpers.go, ConvertDownwardAPIFieldLabel.
    """
    version, path = reference.get("apiVersion") or "v1", reference.get("fieldPath") or ""
    error = field_label_error(version, path)
    if error:
        return UnresolvedReference(error)
    if path == "spec.host":
        path = "spec.nodeName"
    values = {
        "spec.nodeName": pod.spec.node_name,
        "spec.serviceAccountName": pod.spec.service_account_name,
        "status.hostIP": sources.host_ips[0] if sources.host_ips else "",
        "status.hostIPs": ",".join(sources.host_ips),
        "status.podIP": sources.pod_ips[0] if sources.pod_ips else "",
        "status.podIPs": ",".join(sources.pod_ips),
    }
    return values[path] if path in values else volume_field(path, pod)


def volume_field(path: str, pod: Pod) -> str | UnresolvedReference:
    """The content of a volume's file with a fieldRef, which may name metadata only.

    Follows: v1.36, pkg/fieldpath/fieldpath.go, ExtractFieldPathAsString.
    """
    metadata = pod.metadata
    base, subscript = split_subscript(path)
    if subscript is not None:
        if base not in SUBSCRIPTED_FIELDS:
            return UnresolvedReference(f'fieldPath "{path}" does not support subscript')
        is_annotation = base == "metadata.annotations"
        if not is_label_key(subscript.lower() if is_annotation else subscript):
            return UnresolvedReference(f"invalid key subscript in {path}: {_NAME_RULE}")
        return (metadata.annotations if is_annotation else metadata.labels).get(subscript, "")
    texts = {
        "metadata.annotations": lambda: format_map(metadata.annotations),
        "metadata.labels": lambda: format_map(metadata.labels),
        "metadata.name": lambda: metadata.name,
        "metadata.namespace": lambda: metadata.namespace,
        "metadata.uid": lambda: metadata.uid,
    }
    return texts[path]() if path in texts else UnresolvedReference(f"unsupported fieldPath: {path}")


_NAME_RULE = (
    "name part must consist of alphanumeric characters, '-', '_' or '.', and must start and end with an "
    "alphanumeric character (e.g. 'MyName',  or 'my.name',  or '123-abc', regex used for validation is "
    "'([A-Za-z0-9][-A-Za-z0-9_.]*)?[A-Za-z0-9]')"
)


def format_map(entries: Mapping[str, str]) -> str:
    r"""Labels or annotations in a file or variable: sorted by key, one per line.

    Follows: v1.36, pkg/fieldpath/fieldpath.go, FormatMap.

    >>> print(format_map({"b": "2", "a": 'say "hi"'}))
    a="say \"hi\""
    b="2"
    """
    return "\n".join(f"{key}={quoted(entries[key])}" for key in sorted(entries))


def env_resource(
    reference: Mapping[str, Any], pod: Pod, container: Container, sources: ReferenceSources
) -> str | UnresolvedReference:
    """The value of a variable with a resourceFieldRef: of its own container or of a named one.

    Follows: v1.36, pkg/kubelet/kubelet_pods.go, containerResourceRuntimeValue;
        pkg/kubelet/kubelet_resources.go, defaultPodLimitsForDownwardAPI: with a containerName, a missing
        limit defaults to the node's allocatable for app containers only.
    """
    name = reference.get("containerName") or ""
    default_limits = _default_limits(pod, sources)
    if not name:
        return _amount(reference, _with_default_limits(container, default_limits))
    for other in pod.spec.containers:
        if other.name == name:
            return _amount(reference, _with_default_limits(other, default_limits))
    return _named_amount(reference, name, pod, {})


def volume_resource(
    reference: Mapping[str, Any], pod: Pod, sources: ReferenceSources
) -> str | UnresolvedReference:
    """The content of a volume's file with a resourceFieldRef, which names a container.

    Follows: v1.36, pkg/api/v1/resource/helpers.go, ExtractResourceValueByContainerNameAndNodeAllocatable.
    """
    return _named_amount(reference, reference.get("containerName") or "", pod, sources.allocatable)


def _named_amount(
    reference: Mapping[str, Any], name: str, pod: Pod, default_limits: ResourceList
) -> str | UnresolvedReference:
    for container in (*pod.spec.containers, *pod.spec.init_containers):
        if container.name == name:
            return _amount(reference, _with_default_limits(container, default_limits))
    return UnresolvedReference(f"container {name} not found")


def _default_limits(pod: Pod, sources: ReferenceSources) -> ResourceList:
    """The default limits of a container: the node's allocatable; for CPU and memory the pod-level limit if set."""
    pod_level_limits = pod.spec.resources.limits if pod.spec.resources is not None else {}
    default_limits = dict(sources.allocatable)
    for name in ("cpu", "memory"):
        if name in default_limits and not pod_level_limits.get(name, ZERO).is_zero():
            default_limits[name] = pod_level_limits[name]
    return default_limits


def _with_default_limits(container: Container, default_limits: ResourceList) -> Container:
    """The container with default limits for resources without one.

    Follows: v1.36, pkg/api/v1/resource/helpers.go, MergeContainerResourceLimits.
    """
    limits = container.resources.limits
    added = {
        name: default_limits[name]
        for name in _DEFAULTED
        if name in default_limits and limits.get(name, ZERO).is_zero()
    }
    return replace(container, resources=replace(container.resources, limits={**limits, **added}))


def _amount(reference: Mapping[str, Any], container: Container) -> str | UnresolvedReference:
    """The container's amount in units of the divisor, rounded up.

    Follows: v1.36, pkg/api/v1/resource/helpers.go, ExtractContainerResourceValue, in float64 as in Go.
    """
    resource = reference.get("resource") or ""
    kind, _, name = resource.partition(".")
    amounts = {"limits": container.resources.limits, "requests": container.resources.requests}
    if kind not in amounts or not (name in _DEFAULTED or name.startswith("hugepages-")):
        return UnresolvedReference(f"unsupported container resource : {resource}")
    try:
        divisor = Quantity.parse(str(reference.get("divisor") or "1"))
    except QuantityError as error:
        return UnresolvedReference(str(error))
    if divisor.is_zero():
        divisor = Quantity.of(1)
    amount = amounts[kind].get(name, ZERO)
    is_cpu = name == "cpu"
    counted = divisor.milli_value() if is_cpu else divisor.value()
    if counted == 0:
        # Beyond 64 bits nothing may be left of it. The API server refuses such divisors.
        return UnresolvedReference(f"unsupported divisor: {divisor}")
    return str(math.ceil(float(amount.milli_value() if is_cpu else amount.value()) / float(counted)))
