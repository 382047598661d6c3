"""Family device-manager: device plugins and a device manager, driven through pods."""

from collections.abc import Mapping
from typing import Any

from nodewright.core.devices import DeviceManager, DeviceState
from nodewright.core.devices.allocate import allocatable, allocate, capacity, devices_of, without_stale
from nodewright.core.devices.hints import container_hints, pod_hints
from nodewright.core.devices.manager import PREFERENCES, Plugin, PluginError, Preference
from nodewright.model.device_reasons import DeviceReason, DevicesChosen
from nodewright.model.hints import HintList, ProviderHints
from nodewright.model.objects import Container, Pod
from nodewright.model.profile import Device
from nodewright.model.verdict import Refused, Verdict
from nodewright.render.device_messages import device_message
from nodewright.values.idset import NUMASet
from nodewright.world.decode import decode


def answer(question: dict[str, Any], machines: Mapping[str, Any]) -> Any:
    """What each step gave."""
    del machines
    run = _Run(question)
    return {"steps": [run.step(step) for step in question["steps"]]}


def _short(available: frozenset[str], must_include: frozenset[str], size: int) -> list[str]:
    """Those that must be included and the lowest other one, however many are wanted."""
    del size
    return [*must_include, *sorted(available - must_include)[:1]]


def _junk(available: frozenset[str], must_include: frozenset[str], size: int) -> list[str]:
    """Devices that do not exist."""
    del available, must_include, size
    return ["ghost-1", "ghost-2"]


def _error(available: frozenset[str], must_include: frozenset[str], size: int) -> PluginError:
    """An error."""
    del available, must_include, size
    return PluginError("no preference today")


ANSWERS: Mapping[str, Preference | None] = {
    **PREFERENCES,
    "short": _short,
    "junk": _junk,
    "error": _error,
}


class _Run:
    """The device manager's state from step to step."""

    def __init__(self, question: Mapping[str, Any]) -> None:
        resources = question["resources"]
        self.pods = {name: decode(pod, Pod) for name, pod in question["pods"].items()}
        self.manager = DeviceManager(
            numa=NUMASet.from_ids(question["numaNodes"]),
            plugins={
                name: Plugin(
                    ANSWERS[plugin.get("preferredAllocation") or "absent"],
                    "plugin refuses" if plugin.get("allocateFails") else "",
                )
                for name, plugin in resources.items()
            },
        )
        held = {
            self.pods[pod].uid if pod in self.pods else pod: {
                container: {name: frozenset(ids) for name, ids in devices.items()}
                for container, devices in containers.items()
            }
            for pod, containers in (question.get("initialAllocations") or {}).items()
        }
        devices = {name: _devices(plugin["devices"]) for name, plugin in resources.items()}
        self.state = DeviceState.of(devices, held)
        self.active = dict.fromkeys(held, ())

    def step(self, step: Mapping[str, Any]) -> dict[str, Any]:
        """What the step gave."""
        if step["op"] == "devices":
            self.state = self.state.with_devices(step["resource"], _devices(step["devices"]))
            return {"capacity": _texts(capacity(self.state)), "allocatable": _texts(allocatable(self.state))}
        pod = self.pods[step["pod"]]
        if step["op"] == "podGone":
            self.active.pop(pod.uid, None)
            self.state = without_stale(self.state, self.active)
            return {"allocated": self._in_use()}
        self.active.setdefault(pod.uid, ())
        self.state = without_stale(self.state, self.active)
        if step["op"] == "podHints":
            return _hints(pod_hints(self.manager, self.state, pod))
        containers = (*pod.spec.init_containers, *pod.spec.containers)
        container = next(one for one in containers if one.name == step["container"])
        if step["op"] == "containerHints":
            return _hints(container_hints(self.manager, self.state, pod, container))
        return self.allocate(pod, container, step)

    def allocate(self, pod: Pod, container: Container, step: Mapping[str, Any]) -> dict[str, Any]:
        """What the container got, and from which tiers."""
        nodes = (step.get("affinity") or {}).get("numaNodeAffinity")
        affinity = None if nodes is None else NUMASet.from_ids(nodes)
        done = allocate(self.manager, self.state, pod, container, affinity)
        self.state = done.state
        held = devices_of(self.state, pod.uid, container.name)
        gave = {
            "devices": {resource: list(devices) for resource, devices in held.items()},
            "allocated": self._in_use(),
        }
        if isinstance(done.verdict, Refused):
            return gave | _refusal(done.verdict)
        return gave | {
            "tiers": {
                one.resource: [
                    {"why": tier.why, "from": list(tier.candidates), "take": len(tier.taken)}
                    for tier in one.tiers
                ]
                for one in done.verdict.because
                if isinstance(one, DevicesChosen)
            }
        }

    def _in_use(self) -> dict[str, list[str]]:
        return {name: sorted(devices) for name, devices in self.state.in_use.items() if devices}


def _devices(listed: list[Mapping[str, Any]]) -> list[Device]:
    return [
        Device(
            id=device["id"],
            numa_nodes=None if device.get("numaNodes") is None else tuple(device["numaNodes"]),
            healthy=device.get("health", "Healthy") == "Healthy",
        )
        for device in listed
    ]


def _texts(counts: Mapping[str, int]) -> dict[str, str]:
    return {name: str(count) for name, count in counts.items()}


def _hints(found: Verdict[ProviderHints | None]) -> dict[str, Any]:
    if isinstance(found, Refused):
        return _refusal(found)
    return {"hints": {name: _plain(hints) for name, hints in (found.value or {}).items()}}


def _plain(hints: HintList | None) -> list[dict[str, Any]] | None:
    if hints is None:
        return None
    return [{"numaNodeAffinity": list(hint.numa or ()), "preferred": hint.preferred} for hint in hints]


def _refusal(refused: Refused) -> dict[str, str]:
    reason = refused.because[0]
    assert isinstance(reason, DeviceReason), reason
    return {"error": device_message(reason)}
