"""What contains a pod template, and the pod that its controller makes of it."""

from typing import Any, NamedTuple
from uuid import NAMESPACE_URL, uuid5

from msgspec.structs import replace

from nodewright.model.objects import ObjectMeta, OwnerReference, Pod, PodSpec, Toleration
from nodewright.world.decode import decode


class Template(NamedTuple):
    """Where a kind keeps its pod template and how many pods it wants."""

    path: tuple[str, ...]
    replicas: str | None
    pod_owner: tuple[str, str] | None = None
    """The kind between it and the pod, where there is one."""

    @property
    def text(self) -> str:
        """The path as people read it."""
        return ".".join(self.path)


TEMPLATES = {
    ("apps/v1", "Deployment"): Template(("spec", "template"), "replicas", ("apps/v1", "ReplicaSet")),
    ("apps/v1", "StatefulSet"): Template(("spec", "template"), "replicas"),
    ("apps/v1", "ReplicaSet"): Template(("spec", "template"), "replicas"),
    ("apps/v1", "DaemonSet"): Template(("spec", "template"), None),
    ("batch/v1", "Job"): Template(("spec", "template"), "parallelism"),
    ("batch/v1", "CronJob"): Template(
        ("spec", "jobTemplate", "spec", "template"), "parallelism", ("batch/v1", "Job")
    ),
    ("v1", "ReplicationController"): Template(("spec", "template"), "replicas"),
    ("v1", "PodTemplate"): Template(("template",), None),
}
POD = ("v1", "Pod")

# What the DaemonSet controller adds to every pod, so that its pods survive what the node reports.
_DAEMON_TAINTS = (
    ("not-ready", "NoExecute"),
    ("unreachable", "NoExecute"),
    ("disk-pressure", "NoSchedule"),
    ("memory-pressure", "NoSchedule"),
    ("pid-pressure", "NoSchedule"),
    ("unschedulable", "NoSchedule"),
)
_HOST_NETWORK_TAINT = ("network-unavailable", "NoSchedule")


def pod_of(value: dict[str, Any], namespace: str) -> tuple[Pod, int | None]:
    """The first pod that the controller makes of the object, and how many it wants.

    The object has passed the check of its fields. The pod's name ends in its number, where some
    controllers add letters by chance; its uid follows from kind, namespace and name.
    Follows: v1.36, pkg/controller/controller_utils.go, GetPodFromTemplate.
    """
    version, kind = value["apiVersion"], value["kind"]
    shape = TEMPLATES[version, kind]
    own = decode(value.get("metadata") or {}, ObjectMeta)
    parent = value
    for step in shape.path[:-1]:
        parent = parent.get(step) or {}
    template = decode(parent.get(shape.path[-1]) or {}, Pod)
    owner_version, owner_kind = shape.pod_owner or (version, kind)
    number = _first_number(kind, parent)
    name = own.name or f"{own.generate_name}0"
    owner = OwnerReference(
        api_version=owner_version,
        kind=owner_kind,
        name=name,
        uid=own.uid if owner_kind == kind and own.uid else uid_of(f"{owner_kind}/{namespace}/{name}"),
        controller=True,
    )
    meta = ObjectMeta(
        name=f"{name}-{number}",
        generate_name=f"{name}-",
        namespace=namespace,
        uid=uid_of(f"{kind}/{namespace}/{name}/{number}"),
        labels=template.metadata.labels,
        annotations=template.metadata.annotations,
        owner_references=(owner,),
    )
    spec = _tolerant(template.spec) if kind == "DaemonSet" else template.spec
    return Pod(metadata=meta, spec=spec), _replicas(shape, parent)


def uid_of(text: str) -> str:
    """A uid that follows from the text.

    >>> uid_of("Pod/default/web")
    'e40ff631-78f0-5bc7-bf66-512b48d5dd71'
    """
    return str(uuid5(NAMESPACE_URL, f"nodewright.dev/{text}"))


def _first_number(kind: str, parent: dict[str, Any]) -> int:
    ordinals = parent.get("ordinals") if kind == "StatefulSet" else None
    return int((ordinals or {}).get("start") or 0)


def _replicas(shape: Template, parent: dict[str, Any]) -> int | None:
    if shape.replicas is None:
        return None
    wanted = parent.get(shape.replicas)
    return 1 if wanted is None else int(wanted)


def _tolerant(spec: PodSpec) -> PodSpec:
    """The spec with the tolerations that the DaemonSet controller gives.

    Follows: v1.36, pkg/controller/daemon/util/daemonset_util.go, AddOrUpdateDaemonPodTolerations.
    """
    taints = (*_DAEMON_TAINTS, _HOST_NETWORK_TAINT) if spec.host_network else _DAEMON_TAINTS
    added = tuple(
        Toleration(key=f"node.kubernetes.io/{name}", operator="Exists", effect=effect)
        for name, effect in taints
    )
    return replace(
        spec, tolerations=(*spec.tolerations, *(one for one in added if one not in spec.tolerations))
    )
