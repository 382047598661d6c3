"""The Node object of the agent: what it registers, what it reports, and what it changes of an existing object."""

from collections.abc import Iterable, Mapping
from typing import Any

import msgspec

from nodewright.agent.decide.termination import COUNTED_STAGES
from nodewright.agent.host.ports import RuntimeHandler
from nodewright.agent.member.merge_patch import NODE_LISTS, merge_patch
from nodewright.agent.serving.api_objects import PRESSURE_CONDITION_TEXTS, NodeSystemInfo
from nodewright.agent.state.agent_state import AgentState, PodSource
from nodewright.documents.output.json_yaml import plain_value
from nodewright.documents.profiles.profile_yaml import object_document
from nodewright.engine.core.requests.effective_resources import pod_requests
from nodewright.model.kubernetes.objects import Taint
from nodewright.model.kubernetes.resource_names import is_extended
from nodewright.model.values.instant import Instant
from nodewright.model.values.quantity import Quantity

HOSTNAME_LABEL = "kubernetes.io/hostname"
_DEFAULT_LABELS = (
    *(HOSTNAME_LABEL, "topology.kubernetes.io/zone", "topology.kubernetes.io/region"),
    *("failure-domain.beta.kubernetes.io/zone", "failure-domain.beta.kubernetes.io/region"),
    *("node.kubernetes.io/instance-type", "beta.kubernetes.io/instance-type", "kubernetes.io/os"),
    *("kubernetes.io/arch", "beta.kubernetes.io/os", "beta.kubernetes.io/arch"),
)
"""The labels that are also corrected on an existing object."""
ATTACH_DETACH_ANNOTATION = "volumes.kubernetes.io/controller-managed-attach-detach"
PROVIDED_ADDRESS_ANNOTATION = "alpha.kubernetes.io/provided-node-ip"
_EXTERNAL_CLOUD_TAINT = Taint(
    key="node.cloudprovider.kubernetes.io/uninitialized", value="true", effect="NoSchedule"
)
_OWN_OPTIONAL_FIELDS = ("declaredFeatures", "features", "runtimeHandlers", "volumesInUse")
"""Fields of the status that are the agent's alone, and that it may leave out: it attaches no volumes."""
MAX_IMAGE_NAMES = 5


class NodeIdentity(msgspec.Struct, frozen=True, kw_only=True):
    """What of a Node does not change while the agent runs, and what its settings ask for."""

    name: str
    hostname: str
    system_info: NodeSystemInfo
    architecture: str
    machine_id: str = ""
    system_uuid: str = ""
    boot_id: str = ""
    labels: Mapping[str, str] = {}
    """Labels of the settings, which replace default ones."""
    taints: tuple[Taint, ...] = ()
    provider_id: str = ""
    addresses: tuple[str, ...] = ()
    """Internal addresses."""
    is_address_configured: bool = False
    """Whether the settings name the addresses."""
    is_cloud_external: bool = False
    """Whether a cloud controller initializes the node, and knows its addresses better."""
    kubelet_port: int = 0
    """The port of the kubelet's API; 0: it is not served."""
    is_attach_detach_managed: bool = True
    declared_features: tuple[str, ...] = ()
    """Features that other components may rely on, sorted."""


class NodeReadings(msgspec.Struct, frozen=True, kw_only=True):
    """What is read again for every status.

    Units: now in whole seconds.
    """

    now: Instant
    errors: tuple[str, ...] = ()
    """Why the node is not ready."""
    images: tuple[dict[str, Any], ...] = ()
    runtime_handlers: tuple[RuntimeHandler, ...] = ()
    has_supplemental_groups_policy: bool | None = None
    """None: the runtime does not say."""


def initial_node(identity: NodeIdentity, state: AgentState, readings: NodeReadings) -> dict[str, Any]:
    """The object that the agent registers.

    Follows: v1.36, kubelet/kubelet_node_status.go, initialNode.
    """
    metadata: dict[str, Any] = {"name": identity.name, "labels": _labels(identity)}
    annotations = _annotations(identity)
    if annotations:
        metadata["annotations"] = annotations
    spec: dict[str, Any] = {}
    taints = (*identity.taints, *((_EXTERNAL_CLOUD_TAINT,) if identity.is_cloud_external else ()))
    if taints:
        spec["taints"] = object_document(taints)
    if identity.provider_id:
        spec["providerID"] = identity.provider_id
    return {
        "apiVersion": "v1",
        "kind": "Node",
        "metadata": metadata,
        "spec": spec,
        "status": node_status(identity, state, readings, {}),
    }


def _labels(identity: NodeIdentity) -> dict[str, str]:
    architecture = identity.architecture
    return {
        HOSTNAME_LABEL: identity.hostname,
        "kubernetes.io/os": "linux",
        "kubernetes.io/arch": architecture,
        "beta.kubernetes.io/os": "linux",
        "beta.kubernetes.io/arch": architecture,
        **identity.labels,
    }


def _annotations(identity: NodeIdentity) -> dict[str, str]:
    annotations = {}
    if identity.is_attach_detach_managed:
        annotations[ATTACH_DETACH_ANNOTATION] = "true"
    if identity.is_cloud_external and identity.is_address_configured:
        annotations[PROVIDED_ADDRESS_ANNOTATION] = ",".join(identity.addresses)
    return annotations


def node_status(
    identity: NodeIdentity, state: AgentState, readings: NodeReadings, before: Mapping[str, Any]
) -> dict[str, Any]:
    """The status of the node; ``before`` is the one that the API server has.

    Follows: v1.36, kubelet/nodestatus/setters.go.
    Departs: pods that the API server cannot show (of --workload-dir and `nodewright run`) are subtracted from
        allocatable, so that the scheduler leaves them their room.
    """
    config, system_info = state.node.config, identity.system_info
    node_info: dict[str, Any] = {
        "machineID": identity.machine_id,
        "systemUUID": identity.system_uuid,
        "bootID": identity.boot_id,
        "kernelVersion": system_info.kernel_version,
        "osImage": system_info.os_image,
        "containerRuntimeVersion": system_info.container_runtime_version,
        "kubeletVersion": system_info.kubelet_version,
        "kubeProxyVersion": "",
        "operatingSystem": "linux",
        "architecture": identity.architecture,
    }
    if config.facts.swap_bytes:
        node_info["swap"] = {"capacity": config.facts.swap_bytes}
    status = {
        # What others report, such as attached volumes, stays.
        **{name: value for name, value in before.items() if name not in _OWN_OPTIONAL_FIELDS},
        "capacity": _with_removed(before.get("capacity"), plain_value(dict(config.resources.capacity))),
        "allocatable": _with_removed(before.get("allocatable"), plain_value(_allocatable(state))),
        "conditions": _conditions(state, readings, before.get("conditions") or ()),
        "addresses": _addresses(identity, before),
        "nodeInfo": node_info,
        "daemonEndpoints": {"kubeletEndpoint": {"Port": identity.kubelet_port}},
        "images": list(readings.images),
    }
    if readings.has_supplemental_groups_policy is not None:
        status["features"] = {"supplementalGroupsPolicy": readings.has_supplemental_groups_policy}
    if identity.declared_features:
        status["declaredFeatures"] = list(identity.declared_features)
    if readings.runtime_handlers:
        status["runtimeHandlers"] = [_handler(handler) for handler in readings.runtime_handlers]
    return status


def _handler(handler: RuntimeHandler) -> dict[str, Any]:
    features = {
        "recursiveReadOnlyMounts": handler.has_recursive_read_only_mounts,
        "userNamespaces": handler.has_user_namespaces,
    }
    # The default handler is written without its empty name.
    return {**({"name": handler.name} if handler.name else {}), "features": features}


def _with_removed(before: Mapping[str, str] | None, amounts: dict[str, str]) -> dict[str, str]:
    """The amounts, and those of extended resources that only the API server has: others advertise them."""
    kept = {
        name: amount
        for name, amount in (before or {}).items()
        if name not in amounts and "/" in name and not name.startswith("hugepages-")
    }
    return {**kept, **amounts}


def _allocatable(state: AgentState) -> dict[str, Quantity]:
    allocatable = dict(state.node.config.resources.allocatable)
    for record in state.pods.values():
        if record.source not in (PodSource.API, PodSource.WORKLOAD) or record.stage not in COUNTED_STAGES:
            continue
        for name, amount in {**pod_requests(record.pod), "pods": Quantity.parse("1")}.items():
            if name in allocatable:
                allocatable[name] = max(allocatable[name] - amount, Quantity.parse("0"))
    return allocatable


def _addresses(identity: NodeIdentity, before: Mapping[str, Any]) -> list[dict[str, str]]:
    if identity.is_cloud_external and before.get("addresses"):
        return list(before["addresses"])
    addresses = identity.addresses
    if identity.is_cloud_external and not identity.is_address_configured:
        addresses = ()
    return [
        *({"type": "InternalIP", "address": address} for address in addresses),
        {"type": "Hostname", "address": identity.hostname},
    ]


def _conditions(
    state: AgentState, readings: NodeReadings, before: Iterable[Mapping[str, str]]
) -> list[dict[str, str]]:
    """The conditions, in the order of the API server's; others' conditions stay."""
    old = {condition["type"]: condition for condition in before}
    now, conditions = str(readings.now), {name: dict(condition) for name, condition in old.items()}
    for kind, texts in PRESSURE_CONDITION_TEXTS.items():
        is_true = kind in state.node.conditions
        reason, message = texts[0 if is_true else 1]
        conditions[str(kind)] = _condition(str(kind), (str(is_true), reason, message), old, now)
    errors = (*readings.errors, *((state.shutdown_reason,) if state.shutdown_reason else ()))
    ready = ("True", "KubeletReady", "kubelet is posting ready status")
    if errors:
        message = errors[0] if len(errors) == 1 else f"[{', '.join(errors)}]"
        ready = ("False", "KubeletNotReady", message)
    conditions["Ready"] = _condition("Ready", ready, old, now)
    return list(conditions.values())


def _condition(
    kind: str, texts: tuple[str, str, str], old: Mapping[str, Mapping[str, str]], now: str
) -> dict[str, str]:
    status, reason, message = texts
    before = old.get(kind, {})
    since = before.get("lastTransitionTime") if before.get("status") == status else None
    return {
        "type": kind,
        "status": status,
        "lastHeartbeatTime": now,
        "lastTransitionTime": since or now,
        "reason": reason,
        "message": message,
    }


def image_names(tags: Iterable[str]) -> list[str]:
    """The names of an image that the status shows."""
    return list(tags)[:MAX_IMAGE_NAMES]


# ---------------------------------------------------------------- an existing object


def reported_annotations(identity: NodeIdentity, existing: Mapping[str, str]) -> dict[str, str]:
    """The annotations of an object with every status: the addresses for a cloud controller, or without them.

    Follows: v1.36, kubelet/nodestatus/setters.go, NodeAddress.
    """
    own = _annotations(identity)
    kept = {name: text for name, text in existing.items() if name != PROVIDED_ADDRESS_ANNOTATION}
    addresses = own.get(PROVIDED_ADDRESS_ANNOTATION)
    return {**kept, **({PROVIDED_ADDRESS_ANNOTATION: addresses} if addresses else {})}


def reconciled_node(
    existing: Mapping[str, Any], initial: Mapping[str, Any], *, is_new_machine: bool = False
) -> dict[str, Any]:
    """An existing object with the labels, the annotation and the huge pages that the agent registers.

    On a machine on which no agent has been this node before, extended resources count as 0 until they are advertised.

    Follows: v1.36, kubelet/kubelet_node_status.go, tryRegisterWithAPIServer, updateDefaultLabels,
        reconcileCMADAnnotationWithExistingNode, reconcileExtendedResource, reconcileHugePageResource.
    Departs: the kubelet recognizes a new machine by the missing checkpoints of its device manager.
    """
    metadata = dict(existing.get("metadata") or {})
    labels = dict(metadata.get("labels") or {})
    own_labels = initial["metadata"]["labels"]
    labels |= {name: own_labels[name] for name in _DEFAULT_LABELS if own_labels.get(name)}
    annotations = dict(metadata.get("annotations") or {})
    managed = (initial["metadata"].get("annotations") or {}).get(ATTACH_DETACH_ANNOTATION)
    if managed is None:
        annotations.pop(ATTACH_DETACH_ANNOTATION, None)
    else:
        annotations[ATTACH_DETACH_ANNOTATION] = managed
    metadata |= {"labels": labels, "annotations": annotations}
    status = dict(existing.get("status") or {})
    for field in ("capacity", "allocatable"):
        own = initial["status"][field]
        kept = {
            name: "0" if is_new_machine and is_extended(name) else amount
            for name, amount in (status.get(field) or {}).items()
            if not name.startswith("hugepages-") or name in own
        }
        pages = {name: amount for name, amount in own.items() if name.startswith("hugepages-")}
        status[field] = {**kept, **pages} if kept else dict(own)
    return {**existing, "metadata": metadata, "status": status}


def node_patch(old: Mapping[str, Any], new: Mapping[str, Any]) -> dict[str, Any]:
    """The patch of metadata and status from one object to the other; empty: nothing differs."""
    return merge_patch(_patched_parts(old), _patched_parts(new), NODE_LISTS)


def _patched_parts(node: Mapping[str, Any]) -> dict[str, Any]:
    metadata = node.get("metadata") or {}
    parts = {name: metadata.get(name) or {} for name in ("labels", "annotations")}
    return {"metadata": parts, "status": node.get("status") or {}}


def has_status_changed(old: Mapping[str, Any], new: Mapping[str, Any]) -> bool:
    """Whether two statuses differ in more than the time of the heartbeat.

    Follows: v1.36, kubelet/kubelet_node_status.go, nodeStatusHasChanged.
    """
    return _without_heartbeats(old) != _without_heartbeats(new)


def _without_heartbeats(status: Mapping[str, Any]) -> dict[str, Any]:
    conditions = {
        condition["type"]: {**condition, "lastHeartbeatTime": None}
        for condition in status.get("conditions") or ()
    }
    filled = {name: value for name, value in status.items() if value not in (None, [], {})}
    # The API server writes an amount in its own way: 5000 as 5k.
    amounts = {
        field: {name: Quantity.parse(str(amount)) for name, amount in (status.get(field) or {}).items()}
        for field in ("capacity", "allocatable")
    }
    return {**filled, **amounts, "conditions": conditions}
