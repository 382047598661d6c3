"""What a pod can learn of itself: its fields, and what its containers may use."""

import math
from collections.abc import Mapping
from typing import Any

from msgspec.structs import replace

from nodewright.core.environment.surroundings import Lacking, Surroundings
from nodewright.model.objects import Container, Pod, ResourceList
from nodewright.values.golang import quoted
from nodewright.values.names import is_label_key
from nodewright.values.quantity import ZERO, Quantity, QuantityError

_FIELDS = frozenset(
    [
        "metadata.annotations",
        "metadata.labels",
        "metadata.name",
        "metadata.namespace",
        "metadata.uid",
        "spec.nodeName",
        "spec.restartPolicy",
        "spec.serviceAccountName",
        "spec.schedulerName",
        "status.phase",
        "status.hostIP",
        "status.hostIPs",
        "status.podIP",
        "status.podIPs",
    ]
)
_SUBSCRIPTED = ("metadata.annotations", "metadata.labels")
_DEFAULTED = ("cpu", "memory", "ephemeral-storage")


def variable_field(told: Mapping[str, Any], pod: Pod, around: Surroundings) -> str | Lacking:
    """What a variable says that refers to a field.

    Follows: v1.36, pkg/kubelet/kubelet_pods.go, podFieldSelectorRuntimeValue;
        pkg/apis/core/pods/helpers.go, ConvertDownwardAPIFieldLabel.
    """
    version, path = told.get("apiVersion") or "v1", told.get("fieldPath") or ""
    if version != "v1":
        return Lacking(f"unsupported pod version: {version}")
    if path == "spec.host":
        path = "spec.nodeName"
    base, subscript = split_subscript(path)
    if subscript is not None and base not in _SUBSCRIPTED:
        return Lacking(f"field label does not support subscript: {path}")
    if subscript is None and path not in _FIELDS:
        return Lacking(f"field label not supported: {path}")
    given = {
        "spec.nodeName": pod.spec.node_name,
        "spec.serviceAccountName": pod.spec.service_account_name,
        "status.hostIP": around.host_ips[0] if around.host_ips else "",
        "status.hostIPs": ",".join(around.host_ips),
        "status.podIP": around.pod_ips[0] if around.pod_ips else "",
        "status.podIPs": ",".join(around.pod_ips),
    }
    return given[path] if path in given else file_field(path, pod)


def file_field(path: str, pod: Pod) -> str | Lacking:
    """What a file says that refers to a field: of the metadata alone.

    Follows: v1.36, pkg/fieldpath/fieldpath.go, ExtractFieldPathAsString.
    """
    meta = pod.metadata
    base, subscript = split_subscript(path)
    if subscript is not None:
        if base not in _SUBSCRIPTED:
            return Lacking(f'fieldPath "{path}" does not support subscript')
        is_annotation = base == "metadata.annotations"
        if not is_label_key(subscript.lower() if is_annotation else subscript):
            return Lacking(f"invalid key subscript in {path}: {_NAME_RULE}")
        return (meta.annotations if is_annotation else meta.labels).get(subscript, "")
    texts = {
        "metadata.annotations": lambda: format_map(meta.annotations),
        "metadata.labels": lambda: format_map(meta.labels),
        "metadata.name": lambda: meta.name,
        "metadata.namespace": lambda: meta.namespace,
        "metadata.uid": lambda: meta.uid,
    }
    return texts[path]() if path in texts else Lacking(f"unsupported fieldPath: {path}")


_NAME_RULE = (
    "name part must consist of alphanumeric characters, '-', '_' or '.', and must start and end with an "
    "alphanumeric character (e.g. 'MyName',  or 'my.name',  or '123-abc', regex used for validation is "
    "'([A-Za-z0-9][-A-Za-z0-9_.]*)?[A-Za-z0-9]')"
)


def split_subscript(path: str) -> tuple[str, str | None]:
    """A field's path and its subscript; None: it has none.

    Follows: v1.36, pkg/fieldpath/fieldpath.go, SplitMaybeSubscriptedPath.

    >>> split_subscript("metadata.labels['a[b]c']"), split_subscript("metadata.labels")
    (('metadata.labels', 'a[b]c'), ('metadata.labels', None))
    """
    base, opened, subscript = path.removesuffix("']").partition("['")
    if not path.endswith("']") or not opened or not base:
        return path, None
    return base, subscript


def format_map(entries: Mapping[str, str]) -> str:
    r"""Labels or annotations as a file or variable has them: by key, a line each.

    Follows: v1.36, pkg/fieldpath/fieldpath.go, FormatMap.

    >>> print(format_map({"b": "2", "a": 'say "hi"'}))
    a="say \"hi\""
    b="2"
    """
    return "\n".join(f"{key}={quoted(entries[key])}" for key in sorted(entries))


def variable_resource(
    told: Mapping[str, Any], pod: Pod, container: Container, around: Surroundings
) -> str | Lacking:
    """What a variable says that refers to an amount: of its own container or, by name, of another one.

    Follows: v1.36, pkg/kubelet/kubelet_pods.go, containerResourceRuntimeValue;
        pkg/kubelet/kubelet_resources.go, defaultPodLimitsForDownwardAPI: only main containers named by others
        have the node's allocatable for a limit that they do not have.
    """
    name = told.get("containerName") or ""
    allocatable = _allocatable(pod, around)
    if not name:
        return _amount(told, _limited(container, allocatable))
    for one in pod.spec.containers:
        if one.name == name:
            return _amount(told, _limited(one, allocatable))
    return _named_amount(told, name, pod, {})


def file_resource(told: Mapping[str, Any], pod: Pod, around: Surroundings) -> str | Lacking:
    """What a file says that refers to an amount: of a container by name.

    Follows: v1.36, pkg/api/v1/resource/helpers.go, ExtractResourceValueByContainerNameAndNodeAllocatable.
    """
    return _named_amount(told, told.get("containerName") or "", pod, around.allocatable)


def _named_amount(told: Mapping[str, Any], name: str, pod: Pod, allocatable: ResourceList) -> str | Lacking:
    for one in (*pod.spec.containers, *pod.spec.init_containers):
        if one.name == name:
            return _amount(told, _limited(one, allocatable))
    return Lacking(f"container {name} not found")


def _allocatable(pod: Pod, around: Surroundings) -> ResourceList:
    """What a container is limited by at the most: by the node, or by its pod."""
    limits = pod.spec.resources.limits if pod.spec.resources is not None else {}
    found = dict(around.allocatable)
    for name in ("cpu", "memory"):
        if name in found and not limits.get(name, ZERO).is_zero():
            found[name] = limits[name]
    return found


def _limited(container: Container, allocatable: ResourceList) -> Container:
    """The container with limits for all that it could use.

    Follows: v1.36, pkg/api/v1/resource/helpers.go, MergeContainerResourceLimits.
    """
    limits = container.resources.limits
    more = {
        name: allocatable[name]
        for name in _DEFAULTED
        if name in allocatable and limits.get(name, ZERO).is_zero()
    }
    return replace(container, resources=replace(container.resources, limits={**limits, **more}))


def _amount(told: Mapping[str, Any], container: Container) -> str | Lacking:
    """An amount in units of the divisor, rounded up.

    Follows: v1.36, pkg/api/v1/resource/helpers.go, ExtractContainerResourceValue, in float64 as there.
    """
    wanted = told.get("resource") or ""
    kind, _, name = wanted.partition(".")
    amounts = {"limits": container.resources.limits, "requests": container.resources.requests}
    if kind not in amounts or not (name in _DEFAULTED or name.startswith("hugepages-")):
        return Lacking(f"unsupported container resource : {wanted}")
    try:
        divisor = Quantity.parse(str(told.get("divisor") or "1"))
    except QuantityError as error:
        return Lacking(str(error))
    if divisor.is_zero():
        divisor = Quantity.of(1)
    amount = amounts[kind].get(name, ZERO)
    if name == "cpu":
        return str(math.ceil(float(amount.milli_value()) / float(divisor.milli_value())))
    return str(math.ceil(float(amount.value()) / float(divisor.value())))
