"""Laws of kubelet restarts on existing state files."""

from collections.abc import Sequence

from hypothesis import assume, given
from hypothesis import strategies as st
from msgspec.structs import replace
from tests.support.small_nodes import guaranteed_pods, profiles

from nodewright.documents.profiles.state_files.checkpoints import (
    state_as_written,
    stored_state,
    written_state_files,
)
from nodewright.engine.node.actions import AdmitPod, RejectPod
from nodewright.engine.node.node_state import NodeState
from nodewright.engine.node.restart.restart_rehearsal import RunningPods, rehearse_restart
from nodewright.engine.node.step import running_containers
from nodewright.model.kubernetes.node_profile import NodeProfile
from nodewright.model.kubernetes.objects import Pod
from nodewright.model.kubernetes.scenario import KubeletRestart
from nodewright.model.reasons.cpu import NotEnoughWholeCores
from nodewright.model.reasons.verdict import Granted
from nodewright.model.values.idset import NUMASet
from nodewright.predict.node import Node
from nodewright.predict.replay.scenario_run import (
    NO_CHANGE,
    PendingRestart,
    changed_parts,
    restart_step,
)

NAMES = "abcde"


def filled(profile: NodeProfile, pods: Sequence[Pod], leaving: set[int]) -> NodeState:
    """The node once the pods have come, and some have gone again."""
    node = Node.from_profile(profile)
    for pod in pods:
        node = node.admit(pod).node
    for at in leaving:
        node = node.without_pod(pods[at].uid)
    return node.state


def without_init(pod: Pod) -> Pod:
    return replace(pod, spec=replace(pod.spec, init_containers=()))


def assume_it_can_start(state: NodeState) -> None:
    """Leaves out what no kubelet starts on.

    With strict-cpu-reservation pods may have all CPUs that there are for them. And the memory manager gives a container
    one NUMA node alone that belongs to a group of others, and keeps that as the node's group when the pod is gone.
    """
    assume(state.held.cpu.default or not state.held.cpu.assignments)
    assume(groups_agree(state))


def groups_agree(state: NodeState) -> bool:
    """Whether the NUMA nodes of every block are the group of each of them."""
    memory = state.held.memory
    return all(
        memory.machine[numa].cells == NUMASet.from_ids(block.numa)
        for containers in memory.assignments.values()
        for blocks in containers.values()
        for block in blocks
        for numa in block.numa
    )


PODS = st.tuples(*map(guaranteed_pods, NAMES))
PLAIN_PODS = st.tuples(*(guaranteed_pods(name).map(without_init) for name in NAMES))
LEAVING = st.sets(st.integers(0, len(NAMES) - 1), max_size=2)


@given(profile=profiles(), pods=PLAIN_PODS, leaving=LEAVING)
def test_an_unchanged_restart_keeps_all_pods_and_files(
    profile: NodeProfile, pods: tuple[Pod, ...], leaving: set[int]
) -> None:
    # With full-pcpus-only the kubelet looks for room before it looks at what a container has.
    assume("full-pcpus-only" not in profile.spec.kubelet_configuration["cpuManagerPolicyOptions"])
    state = filled(profile, pods, leaving)
    assume_it_can_start(state)
    done, standing = restart_step(state, NO_CHANGE, PendingRestart())
    assert standing == PendingRestart()
    assert done.actions == tuple(AdmitPod(pod_uid=uid) for uid in state.pods)
    assert list(done.state.pods) == list(state.pods)
    assert done.state.held.devices.pod_devices == state.held.devices.pod_devices
    assert written_state_files(done.state) == written_state_files(state)


@given(profile=profiles(), pods=PODS, leaving=LEAVING)
def test_surviving_pods_keep_their_allocations(
    profile: NodeProfile, pods: tuple[Pod, ...], leaving: set[int]
) -> None:
    """Also where the kubelet turns pods away that ran, or gives ended init containers memory once more."""
    state = filled(profile, pods, leaving)
    done, _ = restart_step(state, NO_CHANGE, PendingRestart())
    assume_it_can_start(state)
    assert not done.state.kubelet_down_for
    before, after = state.held, done.state.held
    for uid in done.state.pods:
        assert after.cpu.assignments.get(uid) == before.cpu.assignments.get(uid)
        kept = before.memory.assignments.get(uid, {})
        assert kept.items() <= after.memory.assignments.get(uid, {}).items()
        assert after.devices.pod_devices.get(uid) == before.devices.pod_devices.get(uid)
    lost = [action for action in done.actions if isinstance(action, RejectPod)]
    plain = [reject_pod for reject_pod in lost if not state.pods[reject_pod.pod_uid].spec.init_containers]
    assert all(isinstance(reject_pod.because[0], NotEnoughWholeCores) for reject_pod in plain)


@given(profile=profiles(), other=profiles(), pods=PODS)
def test_a_rehearsal_predicts_the_restart_and_its_remedy_works(
    profile: NodeProfile, other: NodeProfile, pods: tuple[Pod, ...]
) -> None:
    state = filled(profile, pods, set())
    change = KubeletRestart(kubelet_configuration=other.spec.kubelet_configuration)
    parts = changed_parts(state.config.parts, change)
    assert isinstance(parts, Granted)
    files, there = written_state_files(state), tuple(state.pods.values())
    what = RunningPods(
        pods=there, containers=running_containers(there), held=state_as_written(files, parts.value)
    )
    foretold = rehearse_restart(parts.value, stored_state(files, parts.value), what)
    done, _ = restart_step(state, change, PendingRestart())
    assert [ending.because for ending in foretold.start_failures] == list(done.state.kubelet_down_for)
    if foretold.remedy is not None:
        assert foretold.remedy.reserved_memory is None
        deleted = tuple(foretold.remedy.delete)
        with_deletion = KubeletRestart(
            kubelet_configuration=other.spec.kubelet_configuration, deleted_files=deleted
        )
        for pod in foretold.remedy.drain:
            state = state.without_pod(pod.uid)
        done, _ = restart_step(state, with_deletion, PendingRestart())
        foretold = foretold.remedy.then
    if foretold.starts:
        assert not done.state.kubelet_down_for
        assert {fate.pod.uid for fate in foretold.outcomes if not fate.is_lost} == set(done.state.pods)
