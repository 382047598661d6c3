"""Rehearsed kubelet restarts: failures, remedies and lost pods."""

from collections.abc import Mapping, Sequence
from typing import Any

import msgspec
import pytest
from msgspec.structs import replace

from nodewright.documents.profiles.node_profiles import with_release
from nodewright.documents.profiles.state_files.checkpoints import (
    state_as_written,
    stored_state,
    written_state_files,
)
from nodewright.engine.node.node_config import NodeParts
from nodewright.engine.node.restart.kubelet_startup import StoredState
from nodewright.engine.node.restart.restart_rehearsal import (
    RestartRehearsal,
    invalid_configuration_rehearsal,
    rehearse_restart,
)
from nodewright.engine.node.restart.restart_rehearsal import RunningPods as AllThatRuns
from nodewright.engine.node.step import running_containers
from nodewright.model.kubernetes.kubelet_configuration import MemoryReservation
from nodewright.model.kubernetes.node_profile import Device, NodePart, NodeProfile, UnknownNodePart
from nodewright.model.kubernetes.objects import (
    ContainerState,
    ContainerStateRunning,
    ContainerStateTerminated,
    ContainerStatus,
    Pod,
    PodStatus,
)
from nodewright.model.reasons.kubelet_start import ConfigurationRefused, StateFile
from nodewright.model.reasons.reason import kubelet_text
from nodewright.model.values.quantity import Quantity
from nodewright.predict.node import Node
from nodewright.predict.node_from_profile import node_parts
from nodewright.testing.machines import regular_machine
from nodewright.testing.nodes import STATIC_CPUS, STATIC_MEMORY, a_profile
from nodewright.testing.objects import a_guaranteed_pod, a_pod, container, pod

STATIC = {**STATIC_CPUS, **STATIC_MEMORY}
POD_LEVEL: dict[str, Any] = {"featureGates": {"PodLevelResourceManagers": True}}
GIB = 1 << 30
WEB, DB = a_guaranteed_pod("web", "2/1Gi"), a_guaranteed_pod("db", "5/1Gi")


def rehearsed(profile: NodeProfile, pods: Sequence[Pod], parts: NodeParts, **stored: Any) -> RestartRehearsal:
    """How these parts start on what a node of the profile has written with these pods on it."""
    node = Node.from_profile(profile)
    for each in pods:
        node = node.admit(each).node
    files = written_state_files(node.state)
    there = node.pods
    what = AllThatRuns(pods=there, containers=running_containers(there), held=state_as_written(files, parts))
    return rehearse_restart(parts, msgspec.structs.replace(stored_state(files, parts), **stored), what)


def parts(**kubelet: Any) -> NodeParts:
    return node_parts(a_profile(**kubelet))[0]


def gpus(text: str, **kubelet: Any) -> NodeProfile:
    return a_profile(devices={"v/gpu": text}, **kubelet)


# From, to; the files to delete; what becomes of web and db.
CHANGES: list[tuple[Mapping[str, Any], Mapping[str, Any], str, str]] = [
    (STATIC, STATIC, "", "kept kept"),
    (STATIC, {**STATIC, "topologyManagerPolicy": "best-effort"}, "", "kept kept"),
    (STATIC_CPUS, {**STATIC_CPUS, "topologyManagerPolicy": "single-numa-node"}, "", "kept lost"),
    (STATIC_CPUS, {**STATIC_CPUS, "maxPods": 1}, "", "kept lost"),
    ({}, STATIC_CPUS, "cpu_manager_state", "moved moved"),
    (STATIC_CPUS, {}, "cpu_manager_state", "moved moved"),
    (STATIC_CPUS, STATIC, "memory_manager_state", "moved moved"),
    (STATIC, {}, "cpu_manager_state memory_manager_state", "moved moved"),
    ({**STATIC, **POD_LEVEL}, STATIC, "", "kept kept"),
    (STATIC, {**STATIC, **POD_LEVEL}, "", "kept kept"),
    ({**STATIC, **POD_LEVEL}, {}, "cpu_manager_state memory_manager_state", "moved moved"),
    (STATIC_CPUS, {**STATIC_CPUS, "reservedSystemCPUs": "7"}, "cpu_manager_state", "moved moved"),
    (STATIC_CPUS, {**STATIC_CPUS, "reservedSystemCPUs": "0-1"}, "cpu_manager_state", "moved lost"),
]


@pytest.mark.parametrize(("before", "after", "deleted", "fates"), CHANGES)
def test_a_change_of_configuration(
    before: Mapping[str, Any], after: Mapping[str, Any], deleted: str, fates: str
) -> None:
    rehearsal = rehearsed(a_profile(**before), [WEB, DB], parts(**after))
    assert rehearsal.starts == (not deleted)
    if rehearsal.remedy is not None:
        assert " ".join(rehearsal.remedy.delete) == deleted
        assert rehearsal.remedy.then.starts
        assert not rehearsal.outcomes
        rehearsal = rehearsal.remedy.then
    words = [
        "lost" if outcome.is_lost else "moved" if outcome.is_moved else "kept"
        for outcome in rehearsal.outcomes
    ]
    assert " ".join(words) == fates


def test_allocations_are_reported_before_and_after_even_from_unreadable_files() -> None:
    rehearsal = rehearsed(a_profile(**STATIC_CPUS), [WEB], parts())
    assert rehearsal.remedy is not None
    (fate,) = rehearsal.remedy.then.outcomes
    assert str(fate.before.containers[0].cpus) == "1-2"
    assert fate.after.containers[0].cpus is None


def test_a_machine_with_fewer_cpus_starts_without_the_state_file() -> None:
    smaller = replace(parts(**STATIC_CPUS), machine=regular_machine(2, 3, memory_bytes=4 * GIB))
    rehearsal = rehearsed(a_profile(**STATIC_CPUS), [WEB, DB], smaller)
    assert rehearsal.remedy is not None
    assert rehearsal.remedy.delete == (StateFile.CPU,)
    # The node object still says that there are eight; the CPU manager gives out what there is.
    assert [fate.pod.uid for fate in rehearsal.remedy.then.lost] == ["db"]


RIGHT: list[tuple[list[dict[str, Any]], str]] = [
    ([], "0:2Gi"),
    ([{"numaNode": 1, "limits": {"memory": "1Gi"}}], "0:1Gi 1:1Gi"),
    (
        [{"numaNode": 0, "limits": {"memory": "1Gi"}}, {"numaNode": 1, "limits": {"memory": "3Gi"}}],
        "0:1Gi 1:1Gi",
    ),
    ([{"numaNode": 0, "limits": {"memory": "1Gi"}}, {"numaNode": 7, "limits": {"memory": "1Gi"}}], "0:2Gi"),
    ([{"numaNode": 1, "limits": {"memory": "9Gi"}}], "1:2Gi"),
]


@pytest.mark.parametrize(("given", "right"), RIGHT)
def test_the_proposed_reserved_memory_is_near_to_the_configured_one(
    given: list[dict[str, Any]], right: str
) -> None:
    kubelet = {"memoryManagerPolicy": "Static", "systemReserved": {"memory": "2Gi"}, "reservedMemory": given}
    restart_rehearsal = rehearsed(a_profile(), [WEB], parts(**kubelet))
    assert restart_rehearsal.remedy is not None
    assert restart_rehearsal.remedy.reserved_memory is not None
    shown = " ".join(
        f"{memory_reservation.numa_node}:{memory_reservation.limits['memory']}"
        for memory_reservation in restart_rehearsal.remedy.reserved_memory
    )
    assert shown == right
    assert restart_rehearsal.remedy.delete == (StateFile.MEMORY,)


def test_without_reservations_no_reserved_memory_is_proposed() -> None:
    wrong = [MemoryReservation(numa_node=0, limits={"memory": Quantity.parse("1Gi")})]
    kubelet = {"memoryManagerPolicy": "Static", "reservedMemory": msgspec.to_builtins(wrong, enc_hook=str)}
    assert rehearsed(a_profile(), [], parts(**kubelet)).remedy is None


def test_an_invalid_policy_has_no_remedy() -> None:
    rehearsal = rehearsed(a_profile(), [WEB], parts(cpuManagerPolicy="odd"))
    assert [ending.stage.value for ending in rehearsal.start_failures] == ["managers", "cpu manager"]
    assert rehearsal.remedy is None
    over = parts(systemReserved={"memory": "100Gi"})
    assert [failure.stage.value for failure in rehearsed(a_profile(), [], over).start_failures] == [
        "node allocatable"
    ]


def test_an_invalid_configuration_is_the_first_failure() -> None:
    refused = ConfigurationRefused(path="maxPods", error="must not be a negative number")
    rehearsal = invalid_configuration_rehearsal([refused])
    assert [(failure.stage.value, failure.because) for failure in rehearsal.start_failures] == [
        ("configuration", refused)
    ]
    assert not rehearsal.is_clean


def test_a_pod_preempted_by_a_critical_pod_is_lost() -> None:
    """With less allocatable, the critical pod comes last and takes the place of another."""
    critical = a_guaranteed_pod("critical", "2/1Gi", priority=2_000_001_000)
    rehearsal = rehearsed(
        a_profile(1, 4), [a_pod("web", {"cpu": "2"}), critical], parts(numa=1, kubeReserved={"cpu": "1"})
    )
    (lost,) = rehearsal.lost
    assert lost.pod.uid == "web"
    assert lost.preempted_by is not None
    assert lost.preempted_by.uid == "critical"
    assert not rehearsal.is_clean


def test_a_finished_init_container_with_devices_loses_its_pod() -> None:
    """The kubelet asks for devices for it once more, and no plugin has come back yet."""
    gpu = "1/1Gi"
    train = pod(container("main", gpu, gpu), name="train", uid="train", init=(container("init", gpu, gpu),))
    limits = {**train.spec.init_containers[0].resources.limits, "v/gpu": Quantity.parse("1")}
    init = msgspec.structs.replace(
        train.spec.init_containers[0],
        resources=msgspec.structs.replace(
            train.spec.init_containers[0].resources, limits=limits, requests=limits
        ),
    )
    train = msgspec.structs.replace(train, spec=msgspec.structs.replace(train.spec, init_containers=(init,)))
    (lost,) = rehearsed(gpus("a b"), [train], node_parts(gpus("a b"))[0]).lost
    assert kubelet_text(lost.because[0]).message == (
        "Allocate failed due to no healthy devices present; cannot allocate unhealthy devices v/gpu, "
        "which is unexpected"
    )


def test_running_containers_follow_from_statuses() -> None:
    went = ContainerStatus(name="main", state=ContainerState(terminated=ContainerStateTerminated()))
    runs = ContainerStatus(name="init", state=ContainerState(running=ContainerStateRunning()))
    both = pod(
        container("main"),
        container("other"),
        name="web",
        uid="web",
        init=(container("init"), container("old")),
    )
    assert running_containers([both]) == {("web", "main"), ("web", "other")}
    statuses = msgspec.structs.replace(
        both, status=PodStatus(container_statuses=(went,), init_container_statuses=(runs,))
    )
    assert running_containers([statuses]) == {("web", "init"), ("web", "other")}


def test_allocations_of_unknown_pods_are_undecided_or_stale() -> None:
    node = Node.from_profile(a_profile(**STATIC)).admit(WEB).node
    files = written_state_files(node.state)
    settings = node.config.parts
    stored = stored_state(files, settings)
    nobody = rehearse_restart(
        settings, stored, AllThatRuns(pods=(), containers=frozenset(), held=stored, is_complete=False)
    )
    assert (nobody.stale_pods, len(nobody.not_judged), nobody.is_clean) == (("web",), 1, False)
    other = AllThatRuns(pods=(DB,), containers=frozenset(), held=stored)
    someone = rehearse_restart(settings, stored, other)
    assert (someone.stale_pods, someone.not_judged, someone.is_clean) == (("web",), (), True)


def test_without_state_files_the_kubelet_starts_fresh() -> None:
    settings = parts(**STATIC)
    assert rehearse_restart(
        settings, StoredState(), AllThatRuns(pods=(), containers=frozenset(), held=StoredState())
    ).is_clean


def test_assumed_parts_of_the_node_leave_pods_undecided() -> None:
    settings = parts(**STATIC_CPUS, topologyManagerPolicy="restricted")
    assumed = {NodePart.CPUS: UnknownNodePart(part=NodePart.CPUS)}
    settings = replace(settings, facts=replace(settings.facts, unknown_parts=assumed))
    rehearsal = rehearsed(a_profile(**STATIC_CPUS), [WEB], settings)
    (fate,) = rehearsal.outcomes
    assert (fate.is_undecided, fate.is_lost, fate.is_moved, rehearsal.is_clean) == (True, False, False, False)
    assert fate.because


def test_unlisted_devices_do_not_fail_their_pods() -> None:
    train = a_pod("train", {"v/gpu": "1"}, {"v/gpu": "1"})
    settings = node_parts(gpus("a b"))[0]
    fewer = replace(settings, facts=replace(settings.facts, devices={"v/gpu": (Device("b"),)}))
    rehearsal = rehearsed(gpus("a b"), [train], fewer)
    assert rehearsal.is_clean


@pytest.mark.parametrize("after", [STATIC, {}])
def test_1_36_without_pod_level_managers_does_not_read_what_it_wrote_with_them(
    after: Mapping[str, Any],
) -> None:
    profile = with_release(a_profile(**STATIC, **POD_LEVEL), "1.36")
    next_parts = node_parts(with_release(a_profile(**after), "1.36"))[0]
    remedy = rehearsed(profile, [WEB, DB], next_parts).remedy
    assert remedy is not None
    assert remedy.delete == (StateFile.CPU, StateFile.MEMORY)


@pytest.mark.parametrize(("before", "after"), [("1.36", "1.37"), ("1.37", "1.36"), ("1.37", "1.32")])
def test_another_release_keeps_what_containers_hold(before: str, after: str) -> None:
    profile = with_release(a_profile(**STATIC), before)
    next_parts = node_parts(with_release(profile, after))[0]
    rehearsal = rehearsed(profile, [WEB, DB], next_parts)
    assert rehearsal.starts
    assert not any(outcome.is_moved or outcome.is_lost for outcome in rehearsal.outcomes)
