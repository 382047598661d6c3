"""Warnings about a captured node: what was left out and what was assumed."""

from collections.abc import Sequence
from typing import TypeAlias, assert_never

import msgspec

from nodewright.documents.output.text_layout import counted
from nodewright.model.kubernetes.node_profile import NodePart, UnknownNodePart
from nodewright.model.reasons.kubelet_start import StateFileReason


class PodsEnded(msgspec.Struct, frozen=True, kw_only=True):
    """Pods that have terminated, for which the kubelet keeps nothing."""

    names: tuple[str, ...]


class UnknownPodFields(msgspec.Struct, frozen=True, kw_only=True):
    """Pod fields that are newer than the known releases of Kubernetes; they are ignored."""

    names: tuple[str, ...]


class PodsOfOtherNodes(msgspec.Struct, frozen=True, kw_only=True):
    """Pods of other nodes, or of no node."""

    count: int
    node: str


class PodsNotAdmitted(msgspec.Struct, frozen=True, kw_only=True):
    """Pods that are assigned to the node, and that its kubelet has not admitted."""

    names: tuple[str, ...]


class PodsBeingResized(msgspec.Struct, frozen=True, kw_only=True):
    """Pods whose allocated resources differ from their specs, because a resize is pending."""

    names: tuple[str, ...]


class PodsUndescribed(msgspec.Struct, frozen=True, kw_only=True):
    """Pods in the kubelet's state without a given pod object; placeholders represent them."""

    uids: tuple[str, ...]


class PodsRemoved(msgspec.Struct, frozen=True, kw_only=True):
    """Pods in the kubelet's state that the complete list of pods does not have."""

    uids: tuple[str, ...]


class ManifestsIgnored(msgspec.Struct, frozen=True, kw_only=True):
    """Files in the manifest directory from which the kubelet creates no pod."""

    names: tuple[str, ...]


class ContainersStale(msgspec.Struct, frozen=True, kw_only=True):
    """Allocations of containers that are not in their pods' specs: the kubelet releases them."""

    names: tuple[str, ...]
    """Namespace and name of the pod, then the container."""


class DeviceEntriesUnreadable(msgspec.Struct, frozen=True, kw_only=True):
    """Device entries whose plugin response the kubelet cannot decode: it would not count these devices as held."""

    names: tuple[str, ...]
    """Uid of the pod, container and resource."""


class DeviceCheckpointCorrupt(msgspec.Struct, frozen=True, kw_only=True):
    """The device manager's checkpoint is corrupt: a restarted kubelet counts no device as held."""

    reason: StateFileReason


class ConfigurationInferred(msgspec.Struct, frozen=True, kw_only=True):
    """No configuration was given: the difference between capacity and allocatable counts as reserved."""

    reserved: tuple[tuple[str, str], ...]


class TopologyDiffers(msgspec.Struct, frozen=True, kw_only=True):
    """A NodeResourceTopology object and the configuration differ; the configuration is used."""

    setting: str
    reported: str
    configured: str


class MachineDiffers(msgspec.Struct, frozen=True, kw_only=True):
    """The Node object has another amount of a resource than the machine description."""

    resource: str
    reported: str
    machine: str


class VersionUnknown(msgspec.Struct, frozen=True, kw_only=True):
    """The Node object's version is none of Kubernetes, so that another one is assumed."""

    version: str
    assumed: str


class ConfigurationWarning(msgspec.Struct, frozen=True, kw_only=True):
    """A warning that the kubelet logs about its configuration."""

    text: str


CaptureWarning: TypeAlias = (
    PodsEnded
    | UnknownPodFields
    | PodsOfOtherNodes
    | PodsNotAdmitted
    | PodsBeingResized
    | PodsUndescribed
    | PodsRemoved
    | ManifestsIgnored
    | ContainersStale
    | DeviceEntriesUnreadable
    | DeviceCheckpointCorrupt
    | ConfigurationInferred
    | TopologyDiffers
    | MachineDiffers
    | VersionUnknown
    | ConfigurationWarning
)


_MAX_NAMES = 8


def capture_warning_sentence(warning: CaptureWarning) -> str:
    """The warning as a sentence."""
    match warning:
        case PodsEnded(names=names):
            return f"left out, because they have terminated: {_some(names)}"
        case UnknownPodFields(names=names):
            return f"ignored, because nodewright does not know these pod fields: {_some(names)}"
        case PodsOfOtherNodes(count=count, node=node):
            return f"left out: {counted(count, 'pod')} not on {node}"
        case PodsNotAdmitted(names=names):
            return f"left out, because the kubelet has not admitted them: {_some(names)}"
        case PodsBeingResized(names=names):
            return f"captured with the resources that the kubelet allocated, not those of their specs: {_some(names)}"
        case PodsUndescribed(uids=uids):
            return f"no given pod has these uids; placeholders hold their resources (name the pods with --pods): {_some(uids)}"
        case VersionUnknown(version=version, assumed=assumed):
            return f"status.nodeInfo.kubeletVersion: {version} is no Kubernetes release; {assumed} is assumed"
        case PodsRemoved(uids=uids):
            return f"left out, because no given pod has these uids and the kubelet releases what removed pods held (give a newer list if they are new): {_some(uids)}"
        case ManifestsIgnored(names=names):
            return f"left out, because the kubelet creates no pod from these manifests: {_some(names)}"
        case ContainersStale(names=names):
            return f"left out, because the kubelet releases allocations of containers that are not in their pods: {_some(names)}"
        case DeviceEntriesUnreadable(names=names):
            return (
                "left out, because the kubelet cannot decode the plugins' responses and does not know these devices: "
                + _some(names)
            )
        case DeviceCheckpointCorrupt(reason=reason):
            return f"{reason.sentence()}; a kubelet that starts with it does not know which devices pods hold"
        case ConfigurationInferred(reserved=reserved):
            amounts = ", ".join(f"{name} {amount}" for name, amount in reserved) or "nothing"
            return f"kubelet configuration: none given; the kubelet's defaults are assumed, with systemReserved: {amounts}"
        case TopologyDiffers(setting=setting, reported=reported, configured=configured):
            return (
                f"{setting}: the NodeResourceTopology object reports {reported}; "
                f"the configuration's {configured} is used"
            )
        case MachineDiffers(resource=resource, reported=reported, machine=machine):
            return f"{resource}: the Node object reports {reported}; machine and configuration give {machine}"
        case ConfigurationWarning(text=text):
            return f"warning: {text}"
        case _:
            assert_never(warning)


def not_judged_sentence(unknown: UnknownNodePart) -> str:
    """The unknown part of the node, and why it is unknown."""
    names = f" ({_some(unknown.names)})" if unknown.names else ""
    return f"not judged: {_PART_TEXTS[unknown.part]}{names}: {unknown.because}"


_PART_TEXTS: dict[str, str] = {
    NodePart.CONFIGURATION: "everything that depends on the kubelet's configuration",
    NodePart.NUMA_NODES: "the number of NUMA nodes and the resources of each",
    NodePart.CPU_LAYOUT: "which CPUs share a core, a cache and a socket",
    NodePart.CPUS: "which CPUs pods hold",
    NodePart.MEMORY: "on which NUMA nodes pods hold memory",
    NodePart.DEVICES: "on which NUMA nodes devices are, and which devices pods hold",
    NodePart.PODS: "the pods' specs, except the resources that they hold",
}


def broken_state_text(reasons: Sequence[StateFileReason]) -> tuple[str, ...]:
    """Why the node cannot be captured: our sentence and the kubelet's message for each file."""
    return tuple(
        f"{reason.sentence()}: the kubelet does not start with it: {reason.kubelet().message}"
        for reason in reasons
    )


def _some(names: Sequence[str]) -> str:
    rest = len(names) - _MAX_NAMES
    return ", ".join(names[:_MAX_NAMES]) + (f" and {rest} more" if rest > 0 else "")
