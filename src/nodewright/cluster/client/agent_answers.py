"""The answers of an agent, checked where they arrive: commands read only what is declared here, and pods."""

from collections.abc import Iterable
from typing import Annotated, Any, TypeVar

import msgspec

from nodewright.cluster.client.agent_client import AgentClient
from nodewright.documents.formats.decode import decode, type_faults
from nodewright.model.errors import HostError
from nodewright.model.kubernetes.objects import Pod
from nodewright.model.values.instant import Instant
from nodewright.model.values.quantity import INT64_MAX, Quantity

T = TypeVar("T")
_Amount = Annotated[int, msgspec.Meta(ge=0, le=INT64_MAX)]


class _Shape(msgspec.Struct, frozen=True, rename="camel"):
    """Fields that commands read; those without a default are required."""


class _Named(_Shape, frozen=True):
    name: str
    namespace: str = ""
    uid: str = ""
    creation_timestamp: str = ""
    labels: dict[str, str] | None = None
    annotations: dict[str, str] | None = None

    def __post_init__(self) -> None:
        if self.creation_timestamp:
            Instant.parse(self.creation_timestamp)


class _PodObject(_Shape, frozen=True):
    metadata: _Named


class PodItems(_Shape, frozen=True):
    """Pods, of which `decode_pods` reads the rest."""

    items: tuple[_PodObject, ...]


class _Condition(_Shape, frozen=True):
    type: str
    status: str
    reason: str
    message: str = ""


class _Address(_Shape, frozen=True):
    type: str
    address: str


class _Taint(_Shape, frozen=True):
    key: str
    effect: str
    value: str | None = None


class _NodeSpec(_Shape, frozen=True):
    taints: tuple[_Taint, ...] | None = None


class _NodeStatus(_Shape, frozen=True):
    conditions: tuple[_Condition, ...]
    node_info: dict[str, str]
    capacity: dict[str, str]
    allocatable: dict[str, str]
    addresses: tuple[_Address, ...]

    def __post_init__(self) -> None:
        if "kubeletVersion" not in self.node_info:
            raise ValueError("nodeInfo has no kubeletVersion")
        for text in self.allocatable.values():
            Quantity.parse(text)


class NodeObject(_Shape, frozen=True):
    """A Node."""

    metadata: _Named
    status: _NodeStatus
    spec: _NodeSpec


class NodeItems(_Shape, frozen=True):
    """Nodes."""

    items: tuple[NodeObject, ...]


class _Involved(_Shape, frozen=True):
    kind: str
    name: str
    uid: str


class _Source(_Shape, frozen=True):
    component: str


class _Event(_Shape, frozen=True):
    metadata: dict[str, str]
    involved_object: _Involved
    type: str
    reason: str
    message: str
    count: _Amount
    source: _Source
    first_timestamp: str
    last_timestamp: str

    def __post_init__(self) -> None:
        Instant.parse(self.first_timestamp)
        Instant.parse(self.last_timestamp)
        if not {"name", "namespace"} <= self.metadata.keys():
            raise ValueError("metadata has no name or namespace")


class EventItems(_Shape, frozen=True):
    """Events."""

    items: tuple[_Event, ...]


class _ContainerUsage(_Shape, frozen=True):
    name: str
    cpu_nano_cores: _Amount | None
    working_set_bytes: _Amount | None


class _PodUsage(_Shape, frozen=True):
    name: str
    namespace: str
    containers: tuple[_ContainerUsage, ...]


class _NodeUsage(_ContainerUsage, frozen=True):
    cpus: _Amount
    memory_bytes: _Amount


class Usage(_Shape, frozen=True):
    """The usage of the node and its pods."""

    node: _NodeUsage
    pods: tuple[_PodUsage, ...]


class Why(_Shape, frozen=True):
    """The reasons for the placement of a pod."""

    text: str = ""


class _ProfileSpec(_Shape, frozen=True):
    devices: dict[str, tuple[dict[str, Any], ...]] | None = None


class ProfileObject(_Shape, frozen=True):
    """A NodeProfile, of which the devices are read."""

    spec: _ProfileSpec


class WatchedPod(_Shape, frozen=True):
    """A change of a pod."""

    type: str
    object: _PodObject


def checked_answer(document: Any, shape: type) -> Any:
    """The document, if it has the shape.

    Errors: HostError.
    """
    try:
        msgspec.convert(document, shape)
    except msgspec.ValidationError as error:
        raise _unreadable(str(error)) from None
    return document


def answer(agent: AgentClient, shape: type, *route: str, **query: object) -> Any:
    """What the agent answers, if it has the shape. Errors: as `AgentClient.get`."""
    return checked_answer(agent.get(*route, **query), shape)


def decode_pods(items: Iterable[Any]) -> list[Pod]:
    """The pods in an agent's response.

    Errors: HostError.
    """
    return [_pod(item) for item in items]


def _pod(item: Any) -> Pod:
    if faults := type_faults(item, "Pod"):
        raise _unreadable(str(faults[0]))
    checked_answer(item, _PodObject)
    return decode_answer(item, Pod)


def decode_answer(document: Any, kind: type[T]) -> T:
    """The document as an object of that kind.

    Errors: HostError.
    """
    try:
        return decode(document, kind)
    except msgspec.ValidationError as error:
        raise _unreadable(str(error)) from None


def _unreadable(error: str) -> HostError:
    return HostError("read the answer of", "the agent", error)
