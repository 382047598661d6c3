"""Pods and nodes for tests, in one line each."""

from collections.abc import Mapping
from typing import Any

from nodewright.model.objects import Node, Pod
from nodewright.world.decode import decode

Amounts = Mapping[str, str | int]


def a_pod(
    name: str = "web",
    requests: Amounts | None = None,
    limits: Amounts | None = None,
    *,
    metadata: Mapping[str, Any] | None = None,
    status: Mapping[str, Any] | None = None,
    **spec: Any,
) -> Pod:
    """A pod with one container that has these requests and limits; its uid is its name.

    >>> a_pod("db", {"cpu": "500m"}, priority=7).spec.containers[0].resources.requests
    {'cpu': Quantity('500m')}
    """
    resources = {"requests": dict(requests or {}), "limits": dict(limits or {})}
    document = {
        "metadata": {"name": name, "namespace": "default", "uid": name, **(metadata or {})},
        "spec": {"containers": [{"name": "main", "resources": resources}], **spec},
        "status": dict(status or {}),
    }
    return decode(document, Pod)


def a_static_pod(name: str = "proxy", requests: Amounts | None = None, **spec: Any) -> Pod:
    """A pod from a file on the node, which makes it critical."""
    annotations = {"kubernetes.io/config.source": "file"}
    return a_pod(name, requests, metadata={"annotations": annotations}, **spec)


def a_node(allocatable: Amounts | None = None, *, name: str = "node1", **metadata_or_spec: Any) -> Node:
    """A node with room for 110 pods and with what is given; `labels` and `taints` go where they belong.

    >>> str(a_node({"cpu": 4}).status.allocatable["pods"])
    '110'
    """
    labels = metadata_or_spec.pop("labels", {"kubernetes.io/hostname": name, "kubernetes.io/os": "linux"})
    document = {
        "metadata": {"name": name, "labels": labels},
        "spec": metadata_or_spec,
        "status": {"allocatable": {"pods": 110, **(allocatable or {})}},
    }
    return decode(document, Node)
