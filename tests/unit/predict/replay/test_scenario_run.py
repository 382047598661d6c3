"""A node through a script of events."""

from collections.abc import Callable, Mapping, Sequence
from typing import Any

import pytest
from msgspec.structs import replace
from tests.support.small_nodes import a_numa_pod, a_small_profile

from nodewright.documents.profiles.node_profiles import with_release
from nodewright.documents.profiles.state_files.checkpoints import (
    StateFiles,
    stored_state,
    written_state_files,
)
from nodewright.engine.node.actions import AdmitPod, ExitKubelet, RejectPod
from nodewright.engine.node.node_state import NodeState
from nodewright.engine.node.restart.kubelet_startup import start_kubelet
from nodewright.model.kubernetes.node_profile import Device, NodeProfile
from nodewright.model.kubernetes.objects import Pod
from nodewright.model.kubernetes.scenario import KubeletRestart, ScenarioEvent
from nodewright.model.reasons.kubelet_start import StateFile
from nodewright.model.reasons.reason import kubelet_fatal_error, kubelet_text
from nodewright.model.reasons.verdict import Granted, Refused
from nodewright.model.values.idset import CPUSet
from nodewright.model.values.instant import Instant
from nodewright.predict.node import Node
from nodewright.predict.node_from_profile import node_parts
from nodewright.predict.replay.scenario_run import (
    EventOutcome,
    PendingRestart,
    changed_parts,
    replay,
    restart_step,
)
from nodewright.testing.machines import regular_machine
from nodewright.testing.nodes import STATIC_CPUS, STATIC_MEMORY, a_profile
from nodewright.testing.objects import a_guaranteed_pod, a_pod, container, pod


def node(**kubelet: Any) -> NodeState:
    return Node.from_profile(a_profile(numa=1, cpus=4, **{**STATIC_CPUS, **kubelet})).state


def run(*events: Mapping[str, Any]) -> list[EventOutcome]:
    return list(replay(node(), [ScenarioEvent(**event) for event in events]))


WEB = a_guaranteed_pod("web", "2/1Gi")
DB = a_guaranteed_pod("db", "2/1Gi")
CRITICAL = a_guaranteed_pod("critical", "2/1Gi", priority=2_000_001_000)


def test_removed_pods_free_resources() -> None:
    web, refused, removed, db = run({"add": WEB}, {"add": DB}, {"remove": "web"}, {"add": DB})
    assert [event_outcome.decision for event_outcome in (web, refused, removed, db)] == [
        "admitted",
        "refused",
        None,
        "admitted",
    ]
    assert web.placement == db.placement is not None
    assert refused.placement is removed.placement is None
    assert list(db.final_state.pods) == ["db"]


@pytest.mark.parametrize("name", ["web", "default/web"])
def test_pods_are_removed_by_uid_or_by_name(name: str) -> None:
    assert not run({"add": WEB}, {"remove": name})[-1].final_state.pods


def test_removing_an_unknown_pod_and_adding_an_existing_one_have_no_effect() -> None:
    nobody, first, again = run({"remove": "nobody"}, {"add": WEB}, {"add": WEB})
    assert (nobody.pod, nobody.was_present, nobody.actions) == (None, False, ())
    assert (again.was_present, again.decision, again.actions) == (True, None, ())
    assert again.final_state is first.final_state


def test_found_pods_are_counted_and_not_judged() -> None:
    (big,) = run({"found": a_pod("big", {"cpu": "100"})})
    assert big.decision is None
    assert list(big.final_state.pods) == ["big"]


def test_a_victim_that_could_not_be_killed_still_counts() -> None:
    old = a_pod("old", {"cpu": "3"})
    _, critical, failed = run({"add": old}, {"add": CRITICAL}, {"kill_failed": "default/old"})
    assert list(critical.final_state.pods) == ["critical"]
    assert list(failed.final_state.pods) == ["critical", "old"]
    (unknown,) = run({"kill_failed": "nobody"})
    assert unknown.pod is None


STATIC = {**STATIC_CPUS, **STATIC_MEMORY}
GIB = 1 << 30
ROOT = "/var/lib/kubelet"


def filled(profile: NodeProfile, *pods: Pod) -> NodeState:
    node = Node.from_profile(profile)
    for each in pods:
        node = node.admit(each).node
    return node.state


def errors(state: NodeState, **change: Any) -> list[str]:
    """What the kubelet says at its end, and what it would say next."""
    done, _ = restart_step(state, KubeletRestart(**change), PendingRestart())
    return [kubelet_fatal_error(reason) for reason in done.state.kubelet_down_for]


def config(**kubelet: Any) -> dict[str, Any]:
    return dict(a_profile(**kubelet).spec.kubelet_configuration)


def drain(manager: str, name: str) -> str:
    return (
        f'please drain this node and delete the {manager} manager checkpoint file "{ROOT}/{name}" '
        "before restarting Kubelet"
    )


CPU_LEAD = "start cpu manager error: could not restore state from checkpoint: "
MEMORY_LEAD = "start memory manager error: could not restore state from checkpoint: "

# What becomes different; the kubelet's words.
ENDINGS: list[tuple[dict[str, Any], list[str]]] = [
    ({"kubelet_configuration": config(**STATIC, topologyManagerPolicy="restricted")}, []),
    ({"kubelet_configuration": config(**{**STATIC, "cpuManagerPolicy": "none"})},
     [(f'{CPU_LEAD}configured policy "none" differs from state checkpoint policy "static", '
      f'{drain("CPU", "cpu_manager_state")}')]),
    ({"kubelet_configuration": config(**STATIC_CPUS, systemReserved={"memory": "1Gi"})},
     [(f'{MEMORY_LEAD}[memorymanager] configured policy "None" differs from state checkpoint policy "Static", '
      f'{drain("memory", "memory_manager_state")}')]),
    ({"kubelet_configuration": config(**{**STATIC, "reservedSystemCPUs": "0-1"})},
     ['start cpu manager error: not all reserved cpus: "0-1" are present in defaultCpuSet: "0,3-7"']),
    ({"kubelet_configuration": config(**STATIC, cpuManagerPolicyOptions={"strict-cpu-reservation": "true"})},
     ['start cpu manager error: some of strictly reserved cpus: "0" are present in defaultCpuSet: "0,3-7"']),
    ({"machine_info": regular_machine(2, 3, memory_bytes=4 * GIB)},
     ['start cpu manager error: current set of available CPUs "0-5" doesn\'t match with CPUs in state "0-7"']),
    ({"machine_info": regular_machine(2, 4, memory_bytes=3 * GIB)},
     ["start memory manager error: [memorymanager] the expected machine state is different from the real one"]),
    ({"kubelet_configuration": config(
        **{**STATIC, "reservedMemory": [{"numaNode": 1, "limits": {"memory": "1Gi"}}]})},
     ["start memory manager error: [memorymanager] the expected machine state is different from the real one"]),
    ({"kubelet_configuration": config(**{**STATIC, "systemReserved": {"memory": "2Gi"}})},
     ['failed to run Kubelet: the total amount "1Gi" of type "memory" is not equal to the value "2Gi" determined by Node Allocatable feature']),
    ({"kubelet_configuration": config(**{**STATIC, "cpuManagerPolicy": "odd"})},
     ['failed to run Kubelet: unknown policy: "odd"',
      (f'{CPU_LEAD}configured policy "odd" differs from state checkpoint policy "static", '
      f'{drain("CPU", "cpu_manager_state")}')]),
    ({"kubelet_configuration": {"maxPods": -1}},
     ["invalid configuration: maxPods (--max-pods) -1 must not be a negative number"]),
    ({"kubelet_configuration": {"maxPods": "many"}},
     ["failed to decode: json: cannot unmarshal string into Go struct field KubeletConfiguration.maxPods of type int32"]),
    ({"kubelet_configuration": config(**{**STATIC, "kubeReserved": {"cpu": "9"}, "reservedSystemCPUs": ""})},
     ["failed to run Kubelet: new static policy error: [cpumanager] unable to reserve the required amount of CPUs (size of  did not equal 9)",
      ('invalid Node Allocatable configuration. Resource "cpu" has a reservation of {{9 0} {<nil>}  DecimalSI} but '
      "capacity of {{8000 -3} {<nil>}  DecimalSI}. Expected capacity >= reservation.")]),
]  # fmt: skip


@pytest.mark.parametrize(("change", "words"), ENDINGS)
def test_the_error_of_a_kubelet_that_does_not_start(change: dict[str, Any], words: list[str]) -> None:
    state = filled(a_profile(**STATIC), a_guaranteed_pod("web", "2/1Gi"))
    assert errors(state, **change) == words


def test_with_the_file_deleted_it_starts_and_pods_are_allocated_again() -> None:
    state = filled(
        a_profile(**STATIC_CPUS), a_guaranteed_pod("gone", "1/1Gi"), a_guaranteed_pod("web", "2/1Gi")
    )
    state = state.without_pod("gone")
    change = KubeletRestart(deleted_files=("cpu_manager_state",))
    done, _ = restart_step(state, change, PendingRestart())
    assert done.actions == (AdmitPod(pod_uid="web"),)
    assert state.held.cpu.exclusive("web", "main") == CPUSet.parse("2-3")
    assert done.state.held.cpu.exclusive("web", "main") == CPUSet.parse("1-2")


DAMAGES: list[tuple[StateFile, Callable[[bytes], bytes], str]] = [
    (StateFile.CPU, lambda content: content[:-3], "unexpected end of JSON input"),
    (StateFile.CPU, lambda content: content.replace(b'"0,', b'"1,'),
     "could not load v4 checkpoint: checkpoint is corrupted"),
    (StateFile.MEMORY, lambda content: content.replace(b"1073741824", b"1073741825"),
     "could not load v3 checkpoint: checkpoint is corrupted"),
]  # fmt: skip
OLDER_DAMAGES: list[tuple[StateFile, Callable[[bytes], bytes], str]] = [
    DAMAGES[0],
    # The last format that the kubelet tries is the oldest; its error is the one that it tells.
    (*DAMAGES[1][:2],
     "json: cannot unmarshal object into Go struct field CPUManagerCheckpointV1.entries of type string"),
    (*DAMAGES[2][:2], "checkpoint is corrupted"),
]  # fmt: skip


@pytest.mark.parametrize(
    ("release", "file", "damage", "words"),
    [*(("1.37", *damage) for damage in DAMAGES), *(("1.36", *damage) for damage in OLDER_DAMAGES)],
)
def test_a_damaged_file_ends_the_kubelet(
    release: str, file: StateFile, damage: Callable[[bytes], bytes], words: str
) -> None:
    state = filled(with_release(a_profile(**STATIC), release), a_guaranteed_pod("web", "2/1Gi"))
    files = written_state_files(state)
    broken = StateFiles(contents={**files.contents, file: damage(files.contents[file])})
    parts = state.config.parts
    (ending,) = start_kubelet(parts, stored_state(broken, parts)).failures
    assert f"could not restore state from checkpoint: {words}, please drain" in kubelet_fatal_error(
        ending.because
    )


def test_a_kubelet_starts_without_the_device_managers_file_and_loses_allocations() -> None:
    state = filled(a_profile(devices={"v/gpu": "a b"}), a_pod("train", {"v/gpu": "1"}, {"v/gpu": "1"}))
    files = written_state_files(state)
    broken = StateFiles(contents={**files.contents, StateFile.DEVICES: b"{}"})
    parts = state.config.parts
    begun = start_kubelet(parts, stored_state(broken, parts))
    assert begun.failures == ()
    assert [kubelet_text(reason).message for reason in begun.warnings] == ["checkpoint is corrupted"]
    assert begun.state is not None
    assert begun.state.held.devices.pod_devices == {}


def test_a_failed_start_leaves_the_files_that_it_made() -> None:
    """The CPU manager makes its file before the memory manager fails: the way back is barred, too."""
    state = filled(a_profile(), a_pod("web", {"cpu": "1"}))
    both = config(**STATIC)
    change = KubeletRestart(kubelet_configuration=both, deleted_files=("cpu_manager_state",))
    done, standing = restart_step(state, change, PendingRestart())
    assert [kubelet_fatal_error(reason)[:20] for reason in done.state.kubelet_down_for] == [
        "start memory manager"
    ]
    back = KubeletRestart(kubelet_configuration=config())
    again, _ = restart_step(done.state, back, standing)
    assert 'configured policy "none" differs from state checkpoint policy "static"' in kubelet_fatal_error(
        again.state.kubelet_down_for[0]
    )
    forth = KubeletRestart(deleted_files=("memory_manager_state",))
    well, _ = restart_step(done.state, forth, standing)
    assert not well.state.kubelet_down_for
    assert well.state.config.parts.kubelet.memory_manager_policy == "Static"


def test_pods_that_violate_the_new_policy_are_rejected() -> None:
    wide, narrow = a_guaranteed_pod("wide", "5/1Gi"), a_guaranteed_pod("narrow", "1/1Gi")
    state = filled(a_profile(**STATIC_CPUS), wide, narrow)
    change = KubeletRestart(
        kubelet_configuration=config(**STATIC_CPUS, topologyManagerPolicy="single-numa-node")
    )
    done, _ = restart_step(state, change, PendingRestart())
    rejected, admitted = done.actions
    assert isinstance(rejected, RejectPod)
    assert kubelet_text(rejected.because[0]).reason == "TopologyAffinityError"
    assert admitted == AdmitPod(pod_uid="narrow")
    assert list(done.state.pods) == ["narrow"]
    assert done.state.without_stale().held.cpu.assignments.keys() == {"narrow"}


def test_with_whole_cores_only_a_full_node_loses_pods_that_it_could_keep() -> None:
    """The kubelet looks for free cores before it sees that the container has its own."""
    profile = a_profile(1, 4, **STATIC_CPUS, cpuManagerPolicyOptions={"full-pcpus-only": "true"})
    state = filled(profile, a_guaranteed_pod("web", "2/1Gi"))
    done, _ = restart_step(state, KubeletRestart(), PendingRestart())
    (rejected,) = done.actions
    assert isinstance(rejected, RejectPod)
    assert kubelet_text(rejected.because[0]).reason == "SMTAlignmentError"


def test_ended_init_containers_get_memory_once_more() -> None:
    text = "1/1Gi"
    web = pod(container("main", text, text), name="web", uid="web", init=(container("init", text, text),))
    state = filled(a_profile(**STATIC_MEMORY), web)
    assert list(state.held.memory.assignments["web"]) == ["main"]
    done, _ = restart_step(state, KubeletRestart(), PendingRestart())
    assert len(done.state.held.memory.assignments["web"]) == 2


def test_running_pods_keep_devices_that_disappeared() -> None:
    train, late = (a_pod(name, {"v/gpu": "1"}, {"v/gpu": "1"}) for name in ("train", "late"))
    state = filled(a_profile(devices={"v/gpu": "a b"}), train)
    done, _ = restart_step(state, KubeletRestart(devices={"v/gpu": (Device("b"),)}), PendingRestart())
    assert done.actions == (AdmitPod(pod_uid="train"),)
    assert done.state.held.devices.pod_devices["train"]["main"] == {"v/gpu": {"a"}}
    assert Node(done.state).admit(late).placement is not None


def replayed(profile: NodeProfile, *events: Mapping[str, Any]) -> Sequence[EventOutcome]:
    return list(replay(Node.from_profile(profile).state, [ScenarioEvent(**event) for event in events]))


def test_pods_wait_while_the_kubelet_is_down_and_are_looked_at_by_age() -> None:
    def born(name: str, second: int) -> Pod:
        guaranteed_pod = a_guaranteed_pod(name, "2/1Gi")
        moment = Instant(second * 10**9)
        return replace(guaranteed_pod, metadata=replace(guaranteed_pod.metadata, creation_timestamp=moment))

    bad = KubeletRestart(kubelet_configuration={"maxPods": -1})
    good = KubeletRestart(kubelet_configuration=config(numa=1, **STATIC_CPUS))
    first, down, waits, goes, gone, up = replayed(
        a_profile(1, 4, **STATIC_CPUS),
        {"add": born("young", 9)},
        {"restart": bad},
        {"add": born("old", 1)},
        {"add": born("fickle", 2)},
        {"remove": "default/fickle"},
        {"restart": good},
    )
    assert first.decision == "admitted"
    assert isinstance(down.actions[0], ExitKubelet)
    assert (waits.decision, goes.decision, list(waits.final_state.pods)) == (
        "undecided",
        "undecided",
        ["young"],
    )
    assert gone.pod is not None
    assert list(gone.final_state.pending_pods) == ["old"]
    # The elder is looked at first, and what the younger one holds stays its own.
    assert [(type(action).__name__, getattr(action, "pod_uid", "")) for action in up.actions] == [
        ("RejectPod", "old"),
        ("AdmitPod", "young"),
    ]
    assert [one.metadata.name for one, _ in up.rejected] == ["old"]
    assert not up.final_state.kubelet_down_for
    assert not up.final_state.pending_pods


def test_static_pods_come_first() -> None:
    static = a_guaranteed_pod("static", "2/1Gi")
    static = replace(
        static,
        metadata=replace(
            static.metadata,
            annotations={"kubernetes.io/config.mirror": "0123"},
            creation_timestamp=Instant(5),
        ),
    )
    state = filled(a_profile(1, 4, **STATIC_CPUS), a_guaranteed_pod("web", "1/1Gi"), static)
    done, _ = restart_step(state, KubeletRestart(), PendingRestart())
    assert [action.pod_uid for action in done.actions if isinstance(action, AdmitPod)] == ["static", "web"]


def test_configurations_are_checked_against_the_machine_that_there_is_now() -> None:
    state = filled(a_profile(1, 4, **{**STATIC_CPUS, "reservedSystemCPUs": "3"}))
    (first, *_) = errors(state, machine_info=regular_machine(1, 2, memory_bytes=4 * GIB))
    assert "3" in first


def test_parts_that_change_are_the_same_as_those_of_a_changed_profile() -> None:
    profile = a_profile(devices={"v/gpu": "a b"}, **STATIC)
    wanted = a_profile(devices={"v/gpu": "a"}, **STATIC_CPUS, maxPods=7)
    change = KubeletRestart(
        kubelet_configuration=wanted.spec.kubelet_configuration, devices=wanted.spec.devices
    )
    changed = changed_parts(node_parts(profile)[0], change)
    assert isinstance(changed, Granted)
    assert changed.value == node_parts(wanted)[0]
    assert isinstance(
        changed_parts(node_parts(profile)[0], KubeletRestart(kubelet_configuration={"maxPods": -1})), Refused
    )


def test_a_kubelet_without_pod_level_managers_drops_the_pod_level_at_its_next_write() -> None:
    pod = a_numa_pod("web", {"cpu": 2000, "memory": 8}, resources={"limits": {"cpu": "2", "memory": "8Mi"}})
    profile = a_small_profile(
        cpuManagerPolicy="static",
        topologyManagerScope="pod",
        topologyManagerPolicy="best-effort",
        featureGates={"PodLevelResourceManagers": True},
    )
    state = filled(profile, pod)
    assert b"podEntries" in written_state_files(state).contents[StateFile.CPU]
    change = KubeletRestart(
        kubelet_configuration={
            **profile.spec.kubelet_configuration,
            "featureGates": {"PodLevelResourceManagers": False},
        }
    )
    done, pending = restart_step(state, change, PendingRestart())
    assert (done.state.kubelet_down_for, pending) == ((), PendingRestart())
    assert b"podEntries" not in written_state_files(done.state).contents[StateFile.CPU]
