"""What is worth saying of a captured node: what was left out, and what was assumed."""

from dataclasses import dataclass
from typing import TypeAlias

from nodewright.model.state_reasons import StateFileReason


@dataclass(frozen=True, slots=True, kw_only=True)
class PodsEnded:
    """Pods that have ended: the kubelet keeps nothing for them."""

    names: tuple[str, ...]


@dataclass(frozen=True, slots=True, kw_only=True)
class FieldsUnknown:
    """Fields of pods that Kubernetes got after the release that we know; they are passed over."""

    names: tuple[str, ...]


@dataclass(frozen=True, slots=True, kw_only=True)
class PodsElsewhere:
    """Pods of other nodes, or of none."""

    count: int
    node: str


@dataclass(frozen=True, slots=True, kw_only=True)
class PodsNotAdmitted:
    """Pods that are assigned to the node, and that its kubelet has not let in yet."""

    names: tuple[str, ...]


@dataclass(frozen=True, slots=True, kw_only=True)
class PodsResized:
    """Pods that hold other amounts than their specs ask for: a resize is not done yet."""

    names: tuple[str, ...]


@dataclass(frozen=True, slots=True, kw_only=True)
class PodsUnexplained:
    """Pods that the kubelet keeps something for and that nobody described; stand-ins are in their place."""

    uids: tuple[str, ...]


@dataclass(frozen=True, slots=True, kw_only=True)
class ManifestsPassedOver:
    """Files beside the manifests of static pods that the kubelet makes no pod of."""

    names: tuple[str, ...]


@dataclass(frozen=True, slots=True, kw_only=True)
class ContainersStale:
    """Holdings of containers that their pods do not have: the kubelet takes them back."""

    names: tuple[str, ...]
    """Namespace and name of the pod, then the container."""


@dataclass(frozen=True, slots=True, kw_only=True)
class DevicesPassedOver:
    """Devices whose plugin's answer the kubelet cannot read again: it would not know that they are held."""

    names: tuple[str, ...]
    """Uid of the pod, container and resource."""


@dataclass(frozen=True, slots=True, kw_only=True)
class DevicesForgotten:
    """The device manager's file is broken: a kubelet that starts on it knows of no devices that are held."""

    reason: StateFileReason


@dataclass(frozen=True, slots=True, kw_only=True)
class ConfigurationInferred:
    """No configuration was given: what pods cannot have is taken for reserved."""

    reserved: tuple[tuple[str, str], ...]


@dataclass(frozen=True, slots=True, kw_only=True)
class TopologyDiffers:
    """A NodeResourceTopology object and the configuration differ; the configuration counts."""

    what: str
    told: str
    configured: str


@dataclass(frozen=True, slots=True, kw_only=True)
class MachineDiffers:
    """The node has more or less of something than the machine that was named."""

    what: str
    told: str
    machine: str


@dataclass(frozen=True, slots=True, kw_only=True)
class ConfigurationWarning:
    """What the kubelet would log of its configuration."""

    text: str


Remark: TypeAlias = (
    PodsEnded
    | FieldsUnknown
    | PodsElsewhere
    | PodsNotAdmitted
    | PodsResized
    | PodsUnexplained
    | ManifestsPassedOver
    | ContainersStale
    | DevicesPassedOver
    | DevicesForgotten
    | ConfigurationInferred
    | TopologyDiffers
    | MachineDiffers
    | ConfigurationWarning
)
