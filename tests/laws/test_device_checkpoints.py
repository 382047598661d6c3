"""The device checkpoint of a state is the kubelet's file, whose rules are written down here step by step."""

from random import Random
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from nodewright.documents.profiles.state_files.device_checkpoint import device_checkpoint
from nodewright.engine.core.devices.device_assignment import allocate, without_inactive_pods
from nodewright.engine.core.devices.device_state import DeviceManager, DeviceState, PluginBehavior
from nodewright.model.kubernetes.node_profile import Device
from nodewright.model.kubernetes.objects import Container, Pod
from nodewright.model.reasons.verdict import Granted
from nodewright.model.values.idset import NUMASet
from nodewright.testing.objects import a_pod

RESOURCES = ("v/a", "v/b", "v/c")
FAILING = "v/c"
"""The resource whose plugin fails to allocate in some runs."""
Entries = dict[tuple[str, str, str], frozenset[str]]
"""Devices by pod, container and resource."""


class KubeletDevices:
    """The rules in the order of the code, with its two books and its file.

    Follows: v1.36, cm/devicemanager/manager.go, Allocate, allocateContainerResources, devicesToAllocate,
        UpdateAllocatedDevices, genericDeviceUpdateCallback, writeCheckpoint, readCheckpoint; pod_devices.go.
    """

    def __init__(self, *, fails: bool) -> None:
        self.fails = fails
        self.healthy: dict[str, set[str]] = {}
        self.held: Entries = {}
        self.allocated: dict[str, set[str]] = {}
        self.reuse: tuple[str, dict[str, set[str]]] = ("", {})
        self.file: Entries = {}

    def list_devices(self, resource: str, healthy: set[str]) -> None:
        self.healthy[resource] = healthy
        self.file = dict(self.held)

    def collect(self, active: set[str]) -> None:
        if any(pod not in active for pod, _, _ in self.held):
            self.held = {key: ids for key, ids in self.held.items() if key[0] in active}
            self.recount()

    def recount(self) -> None:
        self.allocated = {}
        for (_, _, resource), ids in self.held.items():
            self.allocated.setdefault(resource, set()).update(ids)

    def restart(self) -> None:
        self.held, self.reuse = dict(self.file), ("", {})
        self.recount()

    def allocate(self, pod: Pod, container: Container, active: set[str]) -> bool:
        reuse = self.reuse[1] if self.reuse[0] == pod.uid else {}
        self.reuse = (pod.uid, reuse)
        if not self._allocate_resources(pod, container, reuse, active):
            return False
        own = {key[2]: ids for key, ids in self.held.items() if key[:2] == (pod.uid, container.name)}
        is_init = any(init is container for init in pod.spec.init_containers) and not container.is_sidecar
        for resource, ids in own.items():
            left = reuse.get(resource, set())
            reuse[resource] = left | ids if is_init else left - ids
        return True

    def _allocate_resources(
        self, pod: Pod, container: Container, reuse: dict[str, set[str]], active: set[str]
    ) -> bool:
        is_new = False
        for resource in sorted(container.resources.limits):
            if resource not in self.healthy and resource not in self.allocated:
                continue
            self.collect(active)
            count, key = container.resources.limits[resource].value(), (pod.uid, container.name, resource)
            before = self.held.get(key)
            if before is not None and len(before) != count:
                return False
            healthy = self.healthy.get(resource)
            if not healthy or (before is not None and not before <= healthy):
                return False
            if before is not None or count == 0:
                continue
            used = self.allocated.setdefault(resource, set())
            chosen = sorted(reuse.get(resource, set()))[:count]
            used.update(chosen)
            available = sorted(healthy - used)
            if len(available) < count - len(chosen):
                return False
            chosen += available[: count - len(chosen)]
            used.update(chosen)
            if resource == FAILING and self.fails:
                self.recount()
                return False
            is_new = True
            self.held[key] = frozenset(chosen)
        if is_new:
            self.file = dict(self.held)
        return True


def checkpoint_of(state: DeviceState) -> Entries:
    return {
        (entry.pod, entry.container, entry.resource): frozenset(
            id_ for ids in entry.devices.values() for id_ in ids
        )
        for entry in device_checkpoint(state).entries or ()
    }


def in_memory(state: DeviceState) -> Entries:
    return {
        (pod, container, resource): ids
        for pod, containers in state.pod_devices.items()
        for container, resources in containers.items()
        for resource, ids in resources.items()
    }


def some_pod(random: Random, name: str) -> Pod:
    """A pod of init containers, sidecars and app containers that request several resources."""

    def spec(container: str) -> dict[str, Any]:
        limits = {name: random.randint(0, 3) for name in RESOURCES if random.random() < 0.6}
        made: dict[str, Any] = {"name": container, "resources": {"limits": limits}}
        return made | ({"restartPolicy": "Always"} if container == "side" else {})

    init = [spec(container) for container in ("i0", "side", "i1") if random.random() < 0.5]
    return a_pod(name, containers=list(map(spec, ("app", "log"))), initContainers=init)


@pytest.mark.parametrize("fails", [False, True])
@given(random=st.randoms(use_true_random=True))
def test_the_checkpoint_has_what_the_kubelet_writes(random: Random, *, fails: bool) -> None:
    steps = random.choices(("add", "remove", "list", "restart"), (6, 2, 1, 1), k=12)
    plugins = {
        name: PluginBehavior(allocate_error="no" if fails and name == FAILING else "") for name in RESOURCES
    }
    manager, state = DeviceManager(numa=NUMASet.parse("0"), plugins=plugins), DeviceState()
    kubelet, active = KubeletDevices(fails=fails), dict[str, set[str]]()

    def of_active(entries: Entries) -> Entries:
        return {key: ids for key, ids in entries.items() if key[0] in active}

    for number, step in enumerate(["list", *steps]):
        if step in ("list", "restart"):
            if step == "restart":
                kubelet.restart()
                state = state.after_restart().with_all_pods_known()
            for resource in RESOURCES:
                healthy = {f"d{at}" for at in range(8) if random.random() < 0.8}
                kubelet.list_devices(resource, healthy)
                state = state.with_devices(resource, [Device(id=id_) for id_ in sorted(healthy)])
        elif step == "remove" and active:
            active.pop(random.choice(sorted(active)))
        elif step == "add":
            pod = some_pod(random, f"p{number}")
            active[pod.uid] = {"any"}
            for container in (*pod.spec.init_containers, *pod.spec.containers):
                if any(map(state.is_device_plugin_resource, container.resources.limits)):
                    state = without_inactive_pods(state, active)
                done = allocate(manager, state, pod, container, None)
                state = done.state
                assert isinstance(done.verdict, Granted) == kubelet.allocate(pod, container, {*active})
                if not isinstance(done.verdict, Granted):
                    active.pop(pod.uid)
                    break
        written = checkpoint_of(state)
        assert of_active(in_memory(state)) == of_active(kubelet.held)
        # The kubelet's file keeps pods that are gone until it is written again.
        assert written.items() <= kubelet.file.items()
        assert of_active(written) == of_active(kubelet.file)
