"""What can happen to a node."""

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import TypeAlias

from nodewright.core.devices.manager import PluginError
from nodewright.core.eviction import Filesystems
from nodewright.model.device_reasons import DeviceAllocationFailed
from nodewright.model.objects import Pod
from nodewright.model.pressure import NodeCondition
from nodewright.model.profile import Device
from nodewright.model.usage import Usage
from nodewright.model.verdict import Verdict
from nodewright.node.config import NodeParts
from nodewright.node.restart import Stored


@dataclass(frozen=True, slots=True)
class PodArrived:
    """A pod was assigned to the node: the kubelet decides whether it takes it.

    The pod is as the API server gives it out: defaulted.
    """

    pod: Pod
    preferred: Mapping[tuple[str, str], tuple[str, ...] | PluginError] = field(default_factory=dict)
    """What device plugins said when they were asked which devices they prefer, by container and resource."""
    can_ask: bool = False
    """Whether plugins can be asked: what has to be asked then comes back instead of a decision (`AskPlugin`), and
    the pod arrives again with the answer."""


@dataclass(frozen=True, slots=True)
class PodFound:
    """A pod that the node has taken already, before we came to look: it is counted, whatever is said of it."""

    pod: Pod
    is_placed: bool = False
    """Whether the state says what it holds; else the managers are asked, as they were when it came."""


@dataclass(frozen=True, slots=True)
class PodStarted:
    """All containers of an admitted pod have been started, one after the other."""

    uid: str


@dataclass(frozen=True, slots=True)
class PodGone:
    """A pod has ended or was deleted; nothing happens if it was not there."""

    uid: str


@dataclass(frozen=True, slots=True)
class PodResized:
    """Somebody asks for other resources for a pod that runs; nothing happens if it is not there.

    The pod is the one wanted; everything but its resources is left as it is.
    """

    pod: Pod


@dataclass(frozen=True, slots=True)
class KillFailed:
    """A pod that was to be killed would not go; it goes on counting until it is gone."""

    pod: Pod


@dataclass(frozen=True, slots=True)
class ConditionsObserved:
    """The eviction manager has been over the node: these are its conditions from now on, all of them."""

    conditions: tuple[NodeCondition, ...]


@dataclass(frozen=True, slots=True, kw_only=True)
class DevicesObserved:
    """The plugin of a resource says which devices there are from now on, all of them."""

    resource: str
    devices: tuple[Device, ...] | None
    """None: the plugin has been gone for so long that the resource is not the node's any more."""
    preference: str = "absent"
    """Which devices it prefers, one of `core.devices.manager.PREFERENCES`."""


@dataclass(frozen=True, slots=True, kw_only=True)
class DevicesServed:
    """The plugins were told to hand out what a pod that was admitted holds; nothing happens if it is not there.

    One of them failed: the pod is turned away after all.
    """

    uid: str
    responses: Mapping[tuple[str, str], bytes] = field(default_factory=dict)
    """Their answers, by container and resource."""
    failure: DeviceAllocationFailed | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class UsageObserved:
    """The eviction manager goes over the node: it may end pods, and says what conditions there are.

    Units: now_s in seconds on a clock that does not go backwards.
    """

    usage: Usage | None
    """What it reads; None: that failed, and nothing happens."""
    now_s: float
    filesystems: Filesystems | None = None
    """What the container runtime says of them; None: as far as sizes tell."""
    after: Usage | None = None
    """The reading once the node has given back what it can; None: that changed nothing."""


@dataclass(frozen=True, slots=True)
class Restarted:
    """The kubelet has ended, and another one starts on the files that it left; pods went on running."""

    parts: Verdict[NodeParts]
    """What the node is made of from now on; refused: the configuration is none that a kubelet takes."""
    stored: Stored
    """The files as the new kubelet reads them."""


Event: TypeAlias = (
    PodArrived
    | PodFound
    | PodStarted
    | PodGone
    | PodResized
    | KillFailed
    | ConditionsObserved
    | DevicesObserved
    | DevicesServed
    | UsageObserved
    | Restarted
)
