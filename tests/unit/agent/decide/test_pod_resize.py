"""Pods that run get other resources: without a restart, where they are, in an order that the kernel takes."""

import asyncio
import json

import pytest
from msgspec.structs import replace
from tests.support.agent_bench import AgentBench, async_test
from tests.support.fake_clock import FakeClock, settle

from nodewright.agent.pods.effect_runner import apply_resize
from nodewright.agent.runtimes.simulated import FakeCgroups, FakeRuntime
from nodewright.agent.state.agent_state import PodSource, PodStage
from nodewright.agent.state.effects import UpdateContainerResources
from nodewright.engine.core.cgroups.cgroup_facts import AmountOrigin, ContainerSettings, MemoryCeiling
from nodewright.engine.core.cgroups.cgroup_plan import CgroupFile, CgroupLevel, PlannedCgroup
from nodewright.model.errors import HostError
from nodewright.model.kubernetes.objects import Pod, PodCondition
from nodewright.model.kubernetes.pod_spec_fields import ContainerResizePolicy
from nodewright.model.values.quantity import Bytes
from nodewright.testing.nodes import STATIC_CPUS, a_profile
from nodewright.testing.objects import a_guaranteed_pod, a_pod


def rewritten(pod: Pod, uid: str) -> Pod:
    """The pod as a file has it that was written anew."""
    return replace(pod, metadata=replace(pod.metadata, uid=uid))


def anew(pod: Pod, *resources: str) -> Pod:
    (main,) = pod.spec.containers
    policy = tuple(
        ContainerResizePolicy(resource_name=name, restart_policy="RestartContainer") for name in resources
    )
    return replace(pod, spec=replace(pod.spec, containers=(replace(main, resize_policy=policy),)))


def resizes(bench: AgentBench, uid: str) -> list[PodCondition]:
    return [
        condition
        for condition in bench.record(uid).status.conditions
        if condition.type.startswith("PodResize")
    ]


def events(bench: AgentBench) -> list[str]:
    return [event.reason for event in bench.event_recorder.events if "Resize" in event.reason]


@async_test
async def test_a_file_with_other_resources_resizes_its_pod() -> None:
    async with AgentBench() as bench:
        await bench.set_source_pods(a_pod("web", "500m/64Mi"))
        before = len(bench.runtime_operations())
        await bench.set_source_pods(rewritten(a_pod("web", "1/128Mi"), "other"))
        assert bench.runtime_operations()[before:] == ["update_container main-web-0"]
        record = bench.record("web")
        assert set(bench.loop.state.pods) == {"web"}
        assert bench.cgroups.groups["/kubepods/burstable/podweb"]["cpu.weight"] == "39"
        (status,) = record.status.container_statuses
        assert status.resources == record.pod.spec.containers[0].resources
        assert (status.restart_count, str(status.allocated_resources["cpu"])) == (0, "1")
        assert resizes(bench, "web") == []
        assert events(bench) == ["ResizeStarted", "ResizeCompleted"]
        text = next(event.message for event in bench.event_recorder.events if event.reason == "ResizeStarted")
        result = json.loads(text.removeprefix("Pod resize started: "))
        assert result["containers"][0]["resources"]["requests"] == {"cpu": "1", "memory": "128Mi"}
        # What is written the same again changes nothing; what was written before changes it back.
        await bench.set_source_pods(rewritten(a_pod("web", "1/128Mi"), "other"))
        assert len(bench.runtime_operations()) == before + 1
        await bench.set_source_pods(a_pod("web", "500m/64Mi"))
        assert len(bench.runtime_operations()) == before + 2
        await bench.set_source_pods(rewritten(a_pod("web", "1/128Mi"), "other"))
        assert len(bench.runtime_operations()) == before + 3
        assert set(bench.loop.state.pods) == {"web"}


@async_test
async def test_a_file_with_more_than_other_resources_is_another_pod() -> None:
    async with AgentBench() as bench:
        await bench.set_source_pods(a_pod("web", "500m/64Mi"))
        other = rewritten(a_pod("web", "1/128Mi"), "other")
        (main,) = other.spec.containers
        await bench.set_source_pods(
            replace(other, spec=replace(other.spec, containers=(replace(main, image="new"),)))
        )
        await bench.clock.advance(60)
        assert bench.phase("other") == "Running"
        assert bench.phase("web") in ("", "Succeeded", "Failed")


@async_test
async def test_a_resize_that_an_api_server_would_reject_replaces_the_pod() -> None:
    async with AgentBench() as bench:
        await bench.set_source_pods(a_pod("web", "500m/64Mi"))
        # From Burstable to Guaranteed.
        await bench.set_source_pods(rewritten(a_guaranteed_pod("web", "1/64Mi"), "other"))
        await bench.clock.advance(60)
        assert bench.phase("other") == "Running"


@async_test
async def test_a_static_pod_is_replaced() -> None:
    async with AgentBench() as bench:
        await bench.set_source_pods(a_pod("web", "500m/64Mi"), source=PodSource.FILE)
        await bench.set_source_pods(rewritten(a_pod("web", "1/128Mi"), "other"), source=PodSource.FILE)
        await bench.clock.advance(60)
        assert bench.phase("other") == "Running"


@async_test
async def test_a_container_restarts_for_a_resize_if_its_policy_requires_it() -> None:
    async with AgentBench() as bench:
        await bench.set_source_pods(anew(a_pod("web", "500m/64Mi"), "memory"))
        before = len(bench.runtime_operations())
        await bench.set_source_pods(anew(a_pod("web", "500m/128Mi"), "memory"))
        await bench.clock.advance(60)
        assert bench.runtime_operations()[before:][:3] == [
            "stop_container main-web-0",
            "create_container main-web-1",
            "start_container main-web-1",
        ]
        assert bench.record("web").status.container_statuses[0].restart_count == 1
        assert resizes(bench, "web") == []


@async_test
async def test_what_there_is_no_room_for_waits_until_there_is() -> None:
    async with AgentBench(a_profile(**STATIC_CPUS)) as bench:
        big = a_pod("big", "4/64Mi")
        await bench.set_source_pods(a_pod("web", "500m/64Mi"), big)
        wanted = a_pod("web", "6/64Mi")
        await bench.set_source_pods(wanted, big)
        (pending,) = resizes(bench, "web")
        assert (pending.type, pending.status, pending.reason) == ("PodResizePending", "True", "Deferred")
        assert "cpu" in pending.message
        record = bench.record("web")
        assert str(record.pod.spec.containers[0].resources.requests["cpu"]) == "500m"
        assert events(bench) == ["ResizeDeferred"]
        await bench.set_source_pods(wanted)
        await bench.clock.advance(60)
        assert resizes(bench, "web") == []
        assert str(bench.record("web").pod.spec.containers[0].resources.requests["cpu"]) == "6"
        assert events(bench)[-1] == "ResizeCompleted"


@async_test
async def test_a_pending_resize_can_be_withdrawn() -> None:
    async with AgentBench(a_profile(**STATIC_CPUS)) as bench:
        big = a_pod("big", "4/64Mi")
        await bench.set_source_pods(a_pod("web", "500m/64Mi"), big)
        await bench.set_source_pods(a_pod("web", "6/64Mi"), big)
        await bench.set_source_pods(a_pod("web", "500m/64Mi"), big)
        assert resizes(bench, "web") == []
        assert bench.record("web").resizing.desired is None
        assert not bench.loop.state.node.pending_resizes


@async_test
async def test_pinned_cpus_stay() -> None:
    async with AgentBench(a_profile(**STATIC_CPUS)) as bench:
        await bench.set_source_pods(a_guaranteed_pod("pinned", "2/64Mi"))
        held = bench.loop.state.node.held.cpu
        await bench.set_source_pods(a_guaranteed_pod("pinned", "1/64Mi"))
        (pending,) = resizes(bench, "pinned")
        assert (pending.reason, pending.message) == (
            "Infeasible",
            'Resize is infeasible for Guaranteed Pods alongside CPU Manager policy "static"',
        )
        assert bench.loop.state.node.held.cpu == held
        assert bench.record("pinned").stage is PodStage.ACTIVE


@async_test
async def test_a_resize_that_the_runtime_rejects_is_reported_and_tried_again() -> None:
    async with AgentBench() as bench:
        await bench.set_source_pods(a_pod("web", "500m/64Mi"))
        old = bench.record("web").status.container_statuses[0].resources
        bench.runtime.fail("update_container", "device or resource busy")
        await bench.set_source_pods(a_pod("web", "1/64Mi"))
        (running_,) = resizes(bench, "web")
        assert (running_.type, running_.reason) == ("PodResizeInProgress", "Error")
        assert "device or resource busy" in running_.message
        (status,) = bench.record("web").status.container_statuses
        assert status.resources == old
        assert str(status.allocated_resources["cpu"]) == "1"
        await bench.clock.advance(10)
        await settle()
        assert resizes(bench, "web") == []
        assert events(bench) == ["ResizeStarted", "ResizeError", "ResizeCompleted"]


@async_test
async def test_cpus_follow_while_a_resize_keeps_failing() -> None:
    async with AgentBench(a_profile(**STATIC_CPUS)) as bench:
        await bench.set_source_pods(a_pod("web", "500m/64Mi"))
        bench.runtime.fail("update_container", "device or resource busy")
        await bench.set_source_pods(a_pod("web", "1/64Mi"))
        assert resizes(bench, "web")
        await bench.add_pods(a_guaranteed_pod("pinned", "2/64Mi"))
        held = {file.name: file.value for file in bench.runtime.containers["main-web-0"].cgroup_files}
        assert (held["cpuset.cpus"], held["cpu.weight"]) == ("0,3-7", "59")
        order = bench.runtime_operations()
        last = len(order) - 1 - order[::-1].index("update_container main-web-0")
        assert last < order.index("start_container main-pinned-0")
        # Nobody tries the rest before its time, and then all of it is as it should be.
        assert order.count("update_container main-web-0") == 2
        await bench.clock.advance(10)
        await settle()
        held = {file.name: file.value for file in bench.runtime.containers["main-web-0"].cgroup_files}
        assert (held["cpuset.cpus"], held["cpu.weight"]) == ("0,3-7", "100")
        assert resizes(bench, "web") == []
        assert bench.runtime_operations().count("update_container main-web-0") == 3


class Kernel(FakeCgroups):
    """Takes no container that may have more memory than its pod, as version 1 of cgroups with CPU time."""

    def __init__(self, pod: int, container: int) -> None:
        super().__init__()
        self.pod, self.container = pod, container

    def ensure(self, path: str, files: tuple[CgroupFile, ...]) -> None:
        super().ensure(path, files)
        self.pod = int(files[0].value)
        self._check()

    def resize(self, memory: int) -> None:
        self.container = memory
        self._check()

    def _check(self) -> None:
        if self.container > self.pod:
            raise HostError("write", "memory.max", "Invalid argument")


class Runtime(FakeRuntime):
    """Writes to that kernel."""

    def __init__(self, kernel: Kernel) -> None:
        super().__init__(FakeClock())
        self.kernel = kernel

    async def update_container(
        self, container_id: str, settings: ContainerSettings, files: tuple[CgroupFile, ...]
    ) -> None:
        del container_id, settings
        self.kernel.resize(int(files[0].value))


def memory(amount: int) -> CgroupFile:
    return CgroupFile("memory.max", str(amount), MemoryCeiling(Bytes(amount), AmountOrigin.LIMIT))


@pytest.mark.parametrize(("before", "after"), [(64, 128), (128, 64)])
def test_a_pod_never_has_less_than_its_containers(before: int, after: int) -> None:
    kernel = Kernel(before, before)
    FakeCgroups.ensure(kernel, "/pod", (memory(before),))
    group = PlannedCgroup(level=CgroupLevel.POD, path="/pod", files=(memory(after),))
    tune = UpdateContainerResources(
        uid="u", container_id="c", settings=ContainerSettings(), files=(memory(after),)
    )
    assert asyncio.run(apply_resize(Runtime(kernel), kernel, group, (tune,))) == []
    assert (kernel.pod, kernel.container) == (after, after)


def test_a_pod_keeps_what_its_containers_do_not_give_back() -> None:
    kernel = Kernel(128, 128)
    FakeCgroups.ensure(kernel, "/pod", (memory(128),))
    group = PlannedCgroup(level=CgroupLevel.POD, path="/pod", files=(memory(64),))

    class Stubborn(Runtime):
        async def update_container(
            self, container_id: str, settings: ContainerSettings, files: tuple[CgroupFile, ...]
        ) -> None:
            raise HostError("update", container_id, f"busy with {settings} {files}")

    tune = UpdateContainerResources(
        uid="u", container_id="c", settings=ContainerSettings(), files=(memory(64),)
    )
    (failure,) = asyncio.run(apply_resize(Stubborn(kernel), kernel, group, (tune,)))
    assert (failure.reason, failure.container) == ("ResizeError", "c")
    assert kernel.pod == 128
