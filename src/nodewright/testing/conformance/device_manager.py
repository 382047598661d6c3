"""Family device-manager: device plugins and a device manager, driven through pods."""

from collections.abc import Mapping
from typing import Any

from nodewright.documents.formats.decode import decode
from nodewright.engine.core.devices.device_assignment import (
    allocate,
    container_device_ids,
    container_hints,
    device_allocatable,
    device_capacity,
    pod_hints,
    without_inactive_pods,
)
from nodewright.engine.core.devices.device_state import (
    PREFERENCES,
    DeviceManager,
    DevicePluginError,
    DeviceState,
    PluginBehavior,
    PreferenceFunction,
)
from nodewright.model.kubernetes.node_profile import Device
from nodewright.model.kubernetes.objects import Container, Pod
from nodewright.model.reasons.devices import DeviceReason, DevicesChosen
from nodewright.model.reasons.verdict import Refused, Verdict
from nodewright.model.releases.feature_gates import FeatureGates
from nodewright.model.releases.release_rules import ReleaseTable
from nodewright.model.values.idset import NUMASet
from nodewright.model.values.topology_hints import HintList, ProviderHints
from nodewright.testing.conformance.vectors import amount_texts, named_container, question_gates


def answer(question: dict[str, Any], _machines: Mapping[str, Any], release: ReleaseTable) -> Any:
    """The result of each step."""
    run = _DeviceManagerRun(question, question_gates(question, release))
    return {"steps": [run.step(step) for step in question["steps"]]}


def _short(available: frozenset[str], must_include: frozenset[str], size: int) -> list[str]:
    """The devices that must be included and the lowest other one, whatever the size is."""
    del size
    return [*must_include, *sorted(available - must_include)[:1]]


def _junk(available: frozenset[str], must_include: frozenset[str], size: int) -> list[str]:
    """Devices that do not exist."""
    del available, must_include, size
    return ["ghost-1", "ghost-2"]


def _error(available: frozenset[str], must_include: frozenset[str], size: int) -> DevicePluginError:
    """An error."""
    del available, must_include, size
    return DevicePluginError("no preference today")


ANSWERS: Mapping[str, PreferenceFunction | None] = {
    **PREFERENCES,
    "short": _short,
    "junk": _junk,
    "error": _error,
}


class _DeviceManagerRun:
    """A device manager with its state."""

    def __init__(self, question: Mapping[str, Any], gates: FeatureGates) -> None:
        resources = question["resources"]
        self.pods = {name: decode(pod, Pod) for name, pod in question["pods"].items()}
        self.manager = DeviceManager(
            numa=NUMASet.from_ids(question["numaNodes"]),
            skips_claimed_resources=gates["DRAExtendedResource"] and gates.rules.devices_of_claims_skipped,
            hints_from_hosts_only=gates.rules.device_hints_from_hosts_only,
            plugins={
                name: PluginBehavior(
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
        """The result of the step."""
        if step["op"] == "devices":
            self.state = self.state.with_devices(step["resource"], _devices(step["devices"]))
            return {
                "capacity": amount_texts(device_capacity(self.state)),
                "allocatable": amount_texts(device_allocatable(self.state)),
            }
        pod = self.pods[step["pod"]]
        if step["op"] == "podGone":
            self.active.pop(pod.uid, None)
            self.state = without_inactive_pods(self.state, self.active)
            return {"allocated": self._in_use()}
        self.active.setdefault(pod.uid, ())
        self.state = without_inactive_pods(self.state, self.active)
        if step["op"] == "podHints":
            return _hints(pod_hints(self.manager, self.state, pod))
        container = named_container(pod, step["container"])
        if step["op"] == "containerHints":
            return _hints(container_hints(self.manager, self.state, pod, container))
        return self.allocate(pod, container, step)

    def allocate(self, pod: Pod, container: Container, step: Mapping[str, Any]) -> dict[str, Any]:
        """The container's devices, and the tiers that they come from."""
        nodes = (step.get("affinity") or {}).get("numaNodeAffinity")
        affinity = None if nodes is None else NUMASet.from_ids(nodes)
        allocation = allocate(self.manager, self.state, pod, container, affinity)
        self.state = allocation.state
        held = container_device_ids(self.state, pod.uid, container.name)
        gave = {
            "devices": {resource: list(devices) for resource, devices in held.items()},
            "allocated": self._in_use(),
        }
        if isinstance(allocation.verdict, Refused):
            return gave | _refusal(allocation.verdict)
        return gave | {
            "tiers": {
                reason.resource: [
                    {"why": tier.why, "from": list(tier.candidates), "take": len(tier.taken)}
                    for tier in reason.tiers
                ]
                for reason in allocation.verdict.because
                if isinstance(reason, DevicesChosen)
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


def _hints(verdict: Verdict[ProviderHints | None]) -> dict[str, Any]:
    if isinstance(verdict, Refused):
        return _refusal(verdict)
    return {"hints": {name: _plain(hints) for name, hints in (verdict.value or {}).items()}}


def _plain(hints: HintList | None) -> list[dict[str, Any]] | None:
    if hints is None:
        return None
    return [{"numaNodeAffinity": list(hint.numa or ()), "preferred": hint.preferred} for hint in hints]


def _refusal(refused: Refused) -> dict[str, str]:
    reason = refused.because[0]
    assert isinstance(reason, DeviceReason), reason
    return {"error": reason.kubelet_error()}
