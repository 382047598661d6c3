"""What runs in the cgroup of a pod that nobody knows ends before any pod starts; everything else is left alone."""

from collections.abc import Mapping

from msgspec.structs import replace
from tests.support.agent_bench import AgentBench, async_test

from nodewright.agent.pods.cgroup_reconcile import end_stray_pods, stray_pod_cgroups
from nodewright.agent.runtimes.simulated import FakeCgroups
from nodewright.agent.state.agent_state import AgentState, PodRecord, PodSource, PodStage
from nodewright.model.errors import HostError
from nodewright.model.kubernetes.runtime_status import RuntimePodStatus
from nodewright.predict.node import Node
from nodewright.testing.nodes import a_profile
from nodewright.testing.objects import a_guaranteed_pod, a_pod

NODE = Node.from_profile(a_profile()).state
WEB, PINNED = "/kubepods/burstable/podweb", "/kubepods/podpinned"


def cgroups_with(processes: Mapping[str, set[int]]) -> FakeCgroups:
    cgroups = FakeCgroups()
    for path, pids in processes.items():
        cgroups.ensure(path, ())
        cgroups.pids[path] = pids
    return cgroups


def state_with(*records: PodRecord) -> AgentState:
    return AgentState(node=NODE, pods={record.pod.uid: record for record in records})


def web(stage: PodStage = PodStage.ACTIVE) -> PodRecord:
    return PodRecord(
        pod=a_pod("web", "500m/64Mi"), source=PodSource.API, stage=stage, memory=NODE.held.memory
    )


def test_a_pod_cgroup_is_stray_where_neither_agent_nor_runtime_has_the_pod() -> None:
    pods = (*(f"/kubepods/{level}podgone" for level in ("", "burstable/", "besteffort/")), WEB)
    cgroups = cgroups_with({path: set() for path in pods})
    assert set(stray_pod_cgroups(state_with(web()), (), cgroups)) == set(pods) - {WEB}


def test_cgroups_of_daemons_and_of_pods_that_the_runtime_has_are_not_stray() -> None:
    cgroups = cgroups_with({"/system.slice": {1}, "/kubepods/burstable": {2}, WEB: {3}, PINNED: {4}})
    runs = RuntimePodStatus(uid="web", namespace="default", name="web")
    orphan = RuntimePodStatus(uid="pinned", namespace="default", name="pinned")
    state = replace(state_with(), orphans={"pinned": orphan})
    assert stray_pod_cgroups(state, (runs,), cgroups) == ()


def test_a_pod_that_now_belongs_to_another_qos_class_leaves_a_stray_cgroup() -> None:
    cgroups = cgroups_with({"/kubepods/besteffort/podweb": {7}, WEB: {8}})
    assert stray_pod_cgroups(state_with(web()), (), cgroups) == ("/kubepods/besteffort/podweb",)


def test_a_pod_that_the_node_has_rejected_runs_nowhere() -> None:
    assert stray_pod_cgroups(state_with(web(PodStage.REJECTED)), (), cgroups_with({WEB: {7}})) == (WEB,)


def test_without_cgroups_of_pods_there_are_no_stray_ones() -> None:
    node = Node.from_profile(a_profile(cgroupsPerQOS=False, enforceNodeAllocatable=[])).state
    assert stray_pod_cgroups(AgentState(node=node), (), cgroups_with({PINNED: {7}})) == ()


def test_a_stray_cgroup_that_resists_is_reported_and_does_not_spare_the_next() -> None:
    class Stuck(FakeCgroups):
        def kill(self, path: str) -> None:
            if path == WEB:
                raise HostError("kill the processes of", path, "1 processes remain")
            super().kill(path)

    cgroups = Stuck()
    for path in (WEB, PINNED):
        cgroups.ensure(path, ())
        cgroups.pids[path] = {7}
    events = end_stray_pods(state_with(), (), cgroups)
    assert {event.message for event in events} == {
        f"kill the processes of {WEB}: 1 processes remain",
        f"{PINNED} belongs to no known pod: its 1 processes were killed",
    }
    assert cgroups.processes("/kubepods") == (7,)
    assert set(cgroups.groups) == {WEB}


@async_test
async def test_an_agent_ends_stray_pods_before_it_starts_the_first() -> None:
    bench = AgentBench()
    bench.cgroups.ensure(PINNED, ())
    bench.cgroups.pids[PINNED] = {7, 8}
    async with bench:
        assert bench.cgroups.processes(PINNED) == ()
        assert [event.reason for event in bench.event_recorder.events] == ["StrayProcesses"]
        await bench.add_pods(a_guaranteed_pod("pinned", "2/64Mi"))
        assert bench.phase("pinned") == "Running"


@async_test
async def test_an_empty_stray_cgroup_is_removed_without_a_word() -> None:
    bench = AgentBench()
    bench.cgroups.ensure(PINNED, ())
    async with bench:
        assert PINNED not in bench.cgroups.groups
        assert bench.event_recorder.events == []
