"""Warnings about a captured node: what was left out and what was assumed."""

from collections.abc import Sequence
from typing import ClassVar

import msgspec
from msgspec import structs

from nodewright.model.kubernetes.node_profile import NodePart, UnknownNodePart
from nodewright.model.printable import counted
from nodewright.model.reasons.kubelet_start import StateFileReason


class CaptureWarning(msgspec.Struct, frozen=True):
    """A fact about the capture of a node."""

    text: ClassVar[str] = ""

    def sentence(self) -> str:
        """The warning as a sentence."""
        return self.text.format_map(structs.asdict(self))


class NamesWarning(CaptureWarning, frozen=True, kw_only=True):
    """A fact about each of these names."""

    names: tuple[str, ...]

    def sentence(self) -> str:
        """The warning as a sentence, with the first of the names."""
        return f"{self.text}: {_some(self.names)}"


class PodsEnded(NamesWarning, frozen=True, kw_only=True):
    """Pods that have terminated, for which the kubelet keeps nothing."""

    text = "left out, because they have terminated"


class UnknownPodFields(NamesWarning, frozen=True, kw_only=True):
    """Pod fields that are newer than the known releases of Kubernetes; they are ignored."""

    text = "ignored, because nodewright does not know these pod fields"


class PodsOfOtherNodes(CaptureWarning, frozen=True, kw_only=True):
    """Pods of other nodes, or of no node."""

    count: int
    node: str

    def sentence(self) -> str:
        """The warning as a sentence."""
        return f"left out: {counted(self.count, 'pod')} not on {self.node}"


class PodsNotAdmitted(NamesWarning, frozen=True, kw_only=True):
    """Pods that are assigned to the node, and that its kubelet has not admitted."""

    text = "left out, because the kubelet has not admitted them"


class PodsBeingResized(NamesWarning, frozen=True, kw_only=True):
    """Pods whose allocated resources differ from their specs, because a resize is pending."""

    text = "captured with the resources that the kubelet allocated, not those of their specs"


class PodsUndescribed(NamesWarning, frozen=True, kw_only=True):
    """Pods, by uid, in the kubelet's state without a given pod object; placeholders represent them."""

    text = "no given pod has these uids; placeholders hold their resources (name the pods with --pods)"


class PodsRemoved(NamesWarning, frozen=True, kw_only=True):
    """Pods, by uid, in the kubelet's state that the complete list of pods does not have."""

    text = (
        "left out, because no given pod has these uids and the kubelet releases what removed pods held "
        "(give a newer list if they are new)"
    )


class ManifestsIgnored(NamesWarning, frozen=True, kw_only=True):
    """Files in the manifest directory from which the kubelet creates no pod."""

    text = "left out, because the kubelet creates no pod from these manifests"


class ContainersStale(NamesWarning, frozen=True, kw_only=True):
    """Allocations of containers (namespace and name of the pod, then the container) that are not in their pods' specs."""

    text = "left out, because the kubelet releases allocations of containers that are not in their pods"


class DeviceEntriesUnreadable(NamesWarning, frozen=True, kw_only=True):
    """Device entries whose plugin response the kubelet cannot decode: it would not count these devices as held.

    The names are uid of the pod, container and resource.
    """

    text = (
        "left out, because the kubelet cannot decode the plugins' responses and does not know these devices"
    )


class DeviceCheckpointCorrupt(CaptureWarning, frozen=True, kw_only=True):
    """The device manager's checkpoint is corrupt: a restarted kubelet counts no device as held."""

    reason: StateFileReason

    def sentence(self) -> str:
        """The warning as a sentence."""
        return (
            f"{self.reason.sentence()}; a kubelet that starts with it does not know which devices pods hold"
        )


class ConfigurationInferred(CaptureWarning, frozen=True, kw_only=True):
    """No configuration was given: the difference between capacity and allocatable counts as reserved."""

    reserved: tuple[tuple[str, str], ...]

    def sentence(self) -> str:
        """The warning as a sentence."""
        amounts = ", ".join(f"{name} {amount}" for name, amount in self.reserved) or "nothing"
        return f"kubelet configuration: none given; the kubelet's defaults are assumed, with systemReserved: {amounts}"


class TopologyDiffers(CaptureWarning, frozen=True, kw_only=True):
    """A NodeResourceTopology object and the configuration differ; the configuration is used."""

    text = "{setting}: the NodeResourceTopology object reports {reported}; the configuration's {configured} is used"
    setting: str
    reported: str
    configured: str


class MachineDiffers(CaptureWarning, frozen=True, kw_only=True):
    """The Node object has another amount of a resource than the machine description."""

    text = "{resource}: the Node object reports {reported}; machine and configuration give {machine}"
    resource: str
    reported: str
    machine: str


class VersionUnknown(CaptureWarning, frozen=True, kw_only=True):
    """The Node object's version is none of Kubernetes, so that another one is assumed."""

    text = "status.nodeInfo.kubeletVersion: {version} is no Kubernetes release; {assumed} is assumed"
    version: str
    assumed: str


class ConfigurationWarning(CaptureWarning, frozen=True, kw_only=True):
    """A warning that the kubelet logs about its configuration."""

    text = "warning: {logged}"
    logged: str


_MAX_NAMES = 8


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
    NodePart.CPU_DECISIONS: "which CPUs containers get",
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
