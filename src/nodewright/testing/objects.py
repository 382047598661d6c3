"""Short constructors of pods, containers and nodes, for tests and notebooks.

`a_pod` is a pod with one container, as in a manifest; `pod` is a pod with these containers.
Amounts are texts (`50m/100Mi`, `cpu=1 nvidia.com/gpu=2`) or mappings.
"""

from collections.abc import Mapping
from typing import Any, TypeAlias

from nodewright.documents.formats.decode import decode
from nodewright.model.kubernetes.cluster_objects import APINode
from nodewright.model.kubernetes.objects import (
    Container,
    ObjectMeta,
    Pod,
    PodSpec,
    ResourceList,
    ResourceRequirements,
)
from nodewright.model.kubernetes.resource_names import CPU, MEMORY
from nodewright.model.values.quantity import Quantity

Amounts: TypeAlias = str | Mapping[str, str | int]


def a_pod(
    name: str = "web",
    requests: Amounts = "",
    limits: Amounts = "",
    *,
    metadata: Mapping[str, Any] | None = None,
    status: Mapping[str, Any] | None = None,
    **spec: Any,
) -> Pod:
    """A pod with one container with these requests and limits; its uid is its name.

    >>> a_pod("db", {"cpu": "500m"}, priority=7).spec.containers[0].resources.requests
    {'cpu': Quantity('500m')}
    """
    resources = {"requests": _texts(requests), "limits": _texts(limits)}
    document = {
        "metadata": {"name": name, "namespace": "default", "uid": name, **(metadata or {})},
        "spec": {"containers": [{"name": "main", "resources": resources}], **spec},
        "status": dict(status or {}),
    }
    return decode(document, Pod)


def a_static_pod(name: str = "proxy", requests: Amounts = "", **spec: Any) -> Pod:
    """A static pod from a file, which is critical."""
    annotations = {"kubernetes.io/config.source": "file"}
    return a_pod(name, requests, metadata={"annotations": annotations}, **spec)


def a_guaranteed_pod(name: str, asked: Amounts, **spec: Any) -> Pod:
    """A pod whose container has equal requests and limits.

    >>> a_guaranteed_pod("db", "2/1Gi").spec.containers[0].resources.limits["cpu"]
    Quantity('2')
    """
    return a_pod(name, asked, asked, **spec)


def pod(
    *containers: Container,
    name: str = "pod",
    uid: str = "",
    init: tuple[Container, ...] = (),
    overhead: Amounts = "",
    whole: Amounts = "",
) -> Pod:
    """A pod with these containers and init containers; `whole` are requests and limits of the pod itself.

    >>> pod(container("app", "50m/100Mi")).full_name
    'default/pod'
    >>> pod(whole="1/1Gi").spec.resources is None
    False
    """
    level = ResourceRequirements(requests=amounts(whole), limits=amounts(whole)) if whole else None
    spec = PodSpec(
        containers=containers,
        init_containers=init,
        overhead=amounts(overhead) if overhead else None,
        resources=level,
    )
    return Pod(metadata=ObjectMeta(name=name, uid=uid), spec=spec)


def container(name: str, requests: Amounts = "", limits: Amounts = "") -> Container:
    """A container, or an ordinary init container."""
    return Container(
        name=name, resources=ResourceRequirements(requests=amounts(requests), limits=amounts(limits))
    )


def sidecar(name: str, requests: Amounts = "", limits: Amounts = "") -> Container:
    """An init container that keeps running (`restartPolicy: Always`)."""
    return Container(
        name=name,
        restart_policy="Always",
        resources=ResourceRequirements(requests=amounts(requests), limits=amounts(limits)),
    )


def a_node(allocatable: Amounts = "", *, name: str = "node1", **metadata_or_spec: Any) -> APINode:
    """A node with room for 110 pods and this allocatable; `labels` and `taints` are set in metadata and spec.

    >>> str(a_node({"cpu": 4}).status.allocatable["pods"])
    '110'
    """
    labels = metadata_or_spec.pop("labels", {"kubernetes.io/hostname": name, "kubernetes.io/os": "linux"})
    document = {
        "metadata": {"name": name, "labels": labels},
        "spec": metadata_or_spec,
        "status": {"allocatable": {"pods": 110, **_texts(allocatable)}},
    }
    return decode(document, APINode)


def amounts(asked: Amounts) -> ResourceList:
    """Amounts by resource: `cpu/memory`, or name=amount separated by spaces, or a mapping.

    >>> amounts("50m/100Mi")
    {'cpu': Quantity('50m'), 'memory': Quantity('100Mi')}
    >>> amounts("memory=1Gi nvidia.com/gpu=2")
    {'memory': Quantity('1Gi'), 'nvidia.com/gpu': Quantity('2')}
    """
    return {name: Quantity.parse(str(amount)) for name, amount in _texts(asked).items()}


def _texts(asked: Amounts) -> dict[str, str | int]:
    if not isinstance(asked, str):
        return dict(asked)
    if asked and "=" not in asked:
        cpu, memory = asked.split("/")
        return {CPU: cpu, MEMORY: memory}
    pairs = (pair.rsplit("=", 1) for pair in asked.split())
    return {name: str(amount) for name, amount in pairs}
