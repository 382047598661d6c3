"""Before a kubelet's configuration is changed: what it would say, what lets it start, and who is lost."""

from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import Any

import msgspec
import pytest

from nodewright.ask import Node, parts_of
from nodewright.checkpoints import files_of, stored_in, written_in
from nodewright.model.kubelet_config import MemoryReservation
from nodewright.model.objects import ContainerState, ContainerStatus, Pod, PodStatus, Running, Terminated
from nodewright.model.profile import Device, NodeProfile, NotKnown, Part
from nodewright.model.start_reasons import ConfigurationRefused
from nodewright.model.state_reasons import StateFile
from nodewright.node.config import NodeParts
from nodewright.node.rehearsal import Rehearsal, not_configured, rehearse
from nodewright.node.rehearsal import Running as AllThatRuns
from nodewright.node.restart import Stored
from nodewright.node.step import running
from nodewright.render.messages import message
from nodewright.testing.machines import regular_machine
from nodewright.testing.nodes import STATIC_CPUS, STATIC_MEMORY, a_profile
from nodewright.testing.objects import a_guaranteed_pod, a_pod, container, pod
from nodewright.values.quantity import Quantity

STATIC = {**STATIC_CPUS, **STATIC_MEMORY}
POD_LEVEL = {"featureGates": {"PodLevelResourceManagers": True}}
GIB = 1 << 30
WEB, DB = a_guaranteed_pod("web", "2/1Gi"), a_guaranteed_pod("db", "5/1Gi")


def rehearsed(profile: NodeProfile, pods: Sequence[Pod], parts: NodeParts, **stored: Any) -> Rehearsal:
    """How these parts start on what a node of the profile has written with these pods on it."""
    node = Node.of(profile)
    for one in pods:
        node = node.admit(one).node
    files = files_of(node.state)
    there = node.pods
    what = AllThatRuns(pods=there, containers=running(there), held=written_in(files, parts))
    return rehearse(parts, msgspec.structs.replace(stored_in(files, parts), **stored), what)


def parts(**kubelet: Any) -> NodeParts:
    return parts_of(a_profile(**kubelet))[0]


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
    ({**STATIC, **POD_LEVEL}, STATIC, "cpu_manager_state memory_manager_state", "kept kept"),
    (STATIC, {**STATIC, **POD_LEVEL}, "", "kept kept"),
    ({**STATIC, **POD_LEVEL}, {}, "cpu_manager_state memory_manager_state", "moved moved"),
    (STATIC_CPUS, {**STATIC_CPUS, "reservedSystemCPUs": "7"}, "cpu_manager_state", "moved moved"),
    (STATIC_CPUS, {**STATIC_CPUS, "reservedSystemCPUs": "0-1"}, "cpu_manager_state", "moved lost"),
]


@pytest.mark.parametrize(("before", "after", "deleted", "fates"), CHANGES)
def test_a_change_of_configuration(
    before: Mapping[str, Any], after: Mapping[str, Any], deleted: str, fates: str
) -> None:
    found = rehearsed(a_profile(**before), [WEB, DB], parts(**after))
    assert found.starts == (not deleted)
    if found.remedy is not None:
        assert " ".join(found.remedy.delete) == deleted
        assert found.remedy.then.starts
        assert not found.fates
        found = found.remedy.then
    words = ["lost" if one.is_lost else "moved" if one.is_moved else "kept" for one in found.fates]
    assert " ".join(words) == fates


def test_what_is_held_is_told_before_and_after_also_where_the_new_kubelet_cannot_read_it() -> None:
    found = rehearsed(a_profile(**STATIC_CPUS), [WEB], parts())
    assert found.remedy is not None
    (fate,) = found.remedy.then.fates
    assert str(fate.before.containers[0].cpus) == "1-2"
    assert fate.after.containers[0].cpus is None


def test_a_machine_that_lost_cpus_starts_without_its_file() -> None:
    smaller = replace(parts(**STATIC_CPUS), machine=regular_machine(2, 3, memory_bytes=4 * GIB))
    found = rehearsed(a_profile(**STATIC_CPUS), [WEB, DB], smaller)
    assert found.remedy is not None
    assert found.remedy.delete == (StateFile.CPU,)
    # The node object still says that there are eight; the CPU manager gives out what there is.
    assert [fate.pod.uid for fate in found.remedy.then.lost] == ["db"]


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
def test_the_right_reserved_memory_is_near_to_the_given_one(given: list[dict[str, Any]], right: str) -> None:
    kubelet = {"memoryManagerPolicy": "Static", "systemReserved": {"memory": "2Gi"}, "reservedMemory": given}
    found = rehearsed(a_profile(), [WEB], parts(**kubelet))
    assert found.remedy is not None
    assert found.remedy.reserved_memory is not None
    shown = " ".join(f"{one.numa_node}:{one.limits['memory']}" for one in found.remedy.reserved_memory)
    assert shown == right
    assert found.remedy.delete == (StateFile.MEMORY,)


def test_where_nothing_is_reserved_nothing_can_be_proposed() -> None:
    wrong = [MemoryReservation(numa_node=0, limits={"memory": Quantity.parse("1Gi")})]
    kubelet = {"memoryManagerPolicy": "Static", "reservedMemory": msgspec.to_builtins(wrong, enc_hook=str)}
    assert rehearsed(a_profile(), [], parts(**kubelet)).remedy is None


def test_a_wrong_policy_cannot_be_deleted_away() -> None:
    found = rehearsed(a_profile(), [WEB], parts(cpuManagerPolicy="odd"))
    assert [ending.stage.value for ending in found.endings] == ["managers", "cpu manager"]
    assert found.remedy is None
    over = parts(systemReserved={"memory": "100Gi"})
    assert [one.stage.value for one in rehearsed(a_profile(), [], over).endings] == ["node allocatable"]


def test_a_configuration_that_is_none_ends_the_kubelet_first() -> None:
    refused = ConfigurationRefused(path="maxPods", error="must not be a negative number")
    found = not_configured([refused])
    assert [(one.stage.value, one.because) for one in found.endings] == [("configuration", refused)]
    assert not found.is_well


def test_who_is_pushed_out_by_a_critical_pod_is_lost() -> None:
    """With less allocatable, the critical pod comes last and takes the place of another."""
    critical = a_guaranteed_pod("critical", "2/1Gi", priority=2_000_001_000)
    found = rehearsed(
        a_profile(1, 4), [a_pod("web", {"cpu": "2"}), critical], parts(numa=1, kubeReserved={"cpu": "1"})
    )
    (lost,) = found.lost
    assert lost.pod.uid == "web"
    assert lost.pushed_out_by is not None
    assert lost.pushed_out_by.uid == "critical"
    assert not found.is_well


def test_an_ended_init_container_that_asks_for_devices_costs_its_pod_the_life() -> None:
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
    (lost,) = rehearsed(gpus("a b"), [train], parts_of(gpus("a b"))[0]).lost
    assert message(lost.because[0]).message == (
        "Allocate failed due to no healthy devices present; cannot allocate unhealthy devices v/gpu, "
        "which is unexpected"
    )


def test_statuses_say_which_containers_run() -> None:
    went = ContainerStatus(name="main", state=ContainerState(terminated=Terminated()))
    runs = ContainerStatus(name="init", state=ContainerState(running=Running()))
    both = pod(
        container("main"),
        container("other"),
        name="web",
        uid="web",
        init=(container("init"), container("old")),
    )
    assert running([both]) == {("web", "main"), ("web", "other")}
    told = msgspec.structs.replace(
        both, status=PodStatus(container_statuses=(went,), init_container_statuses=(runs,))
    )
    assert running([told]) == {("web", "init"), ("web", "other")}


def test_without_pods_what_is_held_is_open_and_with_them_it_is_left_over() -> None:
    node = Node.of(a_profile(**STATIC)).admit(WEB).node
    files = files_of(node.state)
    settings = node.config.parts
    stored = stored_in(files, settings)
    nobody = rehearse(
        settings, stored, AllThatRuns(pods=(), containers=frozenset(), held=stored, are_known=False)
    )
    assert (nobody.leftovers, len(nobody.not_judged), nobody.is_well) == (("web",), 1, False)
    other = AllThatRuns(pods=(DB,), containers=frozenset(), held=stored)
    someone = rehearse(settings, stored, other)
    assert (someone.leftovers, someone.not_judged, someone.is_well) == (("web",), (), True)


def test_nothing_stored_is_a_first_start() -> None:
    settings = parts(**STATIC)
    assert rehearse(settings, Stored(), AllThatRuns(pods=(), containers=frozenset(), held=Stored())).is_well


def test_what_is_only_assumed_of_the_node_leaves_pods_open() -> None:
    settings = parts(**STATIC_CPUS, topologyManagerPolicy="restricted")
    assumed = {Part.CPUS: NotKnown(part=Part.CPUS)}
    settings = replace(settings, facts=replace(settings.facts, not_known=assumed))
    found = rehearsed(a_profile(**STATIC_CPUS), [WEB], settings)
    (fate,) = found.fates
    assert (fate.is_open, fate.is_lost, fate.is_moved, found.is_well) == (True, False, False, False)
    assert fate.because


def test_devices_that_are_not_listed_any_more_do_not_end_their_pods() -> None:
    train = a_pod("train", {"v/gpu": "1"}, {"v/gpu": "1"})
    settings = parts_of(gpus("a b"))[0]
    fewer = replace(settings, facts=replace(settings.facts, devices={"v/gpu": (Device("b"),)}))
    found = rehearsed(gpus("a b"), [train], fewer)
    assert found.is_well
