"""A device manager and its state, driven by hand."""

from collections.abc import Mapping
from dataclasses import dataclass, field

from tests.support.device_managers import GPU, a_device_manager, some_devices

from nodewright.engine.core.devices.device_assignment import (
    DeviceAllocation,
    allocate,
    container_device_ids,
    without_inactive_pods,
)
from nodewright.engine.core.devices.device_state import DeviceManager, DeviceState, PluginBehavior
from nodewright.model.kubernetes.objects import Pod
from nodewright.model.reasons.reason import Reason
from nodewright.model.reasons.verdict import Refused
from nodewright.model.values.idset import NUMASet

MIXED = "a@0 b@0 c@1 d@1 e@0,1 f@ g"


@dataclass
class Node:
    """A device manager and its state, driven by hand."""

    manager: DeviceManager
    state: DeviceState
    last: DeviceAllocation | None = None
    active: dict[str, tuple[str, ...]] = field(default_factory=dict)

    def serve(self, pod: Pod, container: str = "app", affinity: str | None = None) -> str:
        """What the container holds then, or the kind of the refusal."""
        self.active[pod.uid] = ()
        self.state = without_inactive_pods(self.state, self.active)
        numa = None if affinity is None else NUMASet.parse(affinity)
        spec = pod.spec
        result = next(each for each in (*spec.init_containers, *spec.containers) if each.name == container)
        self.last = allocate(self.manager, self.state, pod, result, numa)
        self.state = self.last.state
        if isinstance(self.last.verdict, Refused):
            return type(self.last.verdict.because[0]).__name__
        return " ".join(container_device_ids(self.state, pod.uid, container).get(GPU, ()))

    def gone(self, pod: str) -> None:
        del self.active[pod]
        self.state = without_inactive_pods(self.state, self.active)

    @property
    def because(self) -> tuple[Reason, ...]:
        assert self.last is not None
        return self.last.verdict.because

    @property
    def in_use(self) -> str:
        return " ".join(sorted(self.state.in_use.get(GPU, ())))


def node(
    devices: str = MIXED, plugin: PluginBehavior | None = None, held: Mapping[str, str] | None = None
) -> Node:
    """A node with these devices, of which pods hold some in their container `app`."""
    books = {pod: {"app": {GPU: frozenset(ids.split())}} for pod, ids in (held or {}).items()}
    state = DeviceState.of({GPU: some_devices(devices)}, books)
    return Node(a_device_manager("0-1", plugin or PluginBehavior()), state, active=dict.fromkeys(books, ()))
