"""What holds when a kubelet starts anew on what it left."""

from collections.abc import Sequence

from hypothesis import assume, given
from hypothesis import strategies as st
from msgspec.structs import replace

from nodewright.ask import Node
from nodewright.checkpoints import files_of, stored_in, written_in
from nodewright.model.cpu_reasons import NotEnoughWholeCores
from nodewright.model.objects import Pod
from nodewright.model.profile import NodeProfile
from nodewright.model.scenario import KubeletRestart
from nodewright.model.verdict import Granted
from nodewright.node.actions import AdmitPod, RejectPod
from nodewright.node.rehearsal import Running, rehearse
from nodewright.node.state import NodeState
from nodewright.node.step import running
from nodewright.sim.restart import AS_IT_WAS, Standing, changed_parts, restarted
from nodewright.testing.crowded import guaranteed_pods, profiles

NAMES = "abcde"


def filled(profile: NodeProfile, pods: Sequence[Pod], leaving: set[int]) -> NodeState:
    """The node once the pods have come, and some have gone again."""
    node = Node.of(profile)
    for pod in pods:
        node = node.admit(pod).node
    for at in leaving:
        node = node.without(pods[at].uid)
    return node.state


def without_init(pod: Pod) -> Pod:
    return replace(pod, spec=replace(pod.spec, init_containers=()))


def assume_it_can_start(state: NodeState) -> None:
    """With strict-cpu-reservation pods may have all CPUs that there are for them: no kubelet starts on that."""
    assume(state.held.cpu.default or not state.held.cpu.assignments)


PODS = st.tuples(*map(guaranteed_pods, NAMES))
PLAIN_PODS = st.tuples(*(guaranteed_pods(name).map(without_init) for name in NAMES))
LEAVING = st.sets(st.integers(0, len(NAMES) - 1), max_size=2)


@given(profile=profiles(), pods=PLAIN_PODS, leaving=LEAVING)
def test_with_nothing_changed_no_pod_is_lost_or_moved_and_the_files_are_the_same(
    profile: NodeProfile, pods: tuple[Pod, ...], leaving: set[int]
) -> None:
    # With full-pcpus-only the kubelet looks for room before it looks at what a container has.
    assume("full-pcpus-only" not in profile.spec.kubelet_configuration["cpuManagerPolicyOptions"])
    state = filled(profile, pods, leaving)
    assume_it_can_start(state)
    done, standing = restarted(state, AS_IT_WAS, Standing())
    assert standing == Standing()
    assert done.actions == tuple(AdmitPod(pod_uid=uid) for uid in state.pods)
    assert list(done.state.pods) == list(state.pods)
    assert done.state.held.devices.held == state.held.devices.held
    assert files_of(done.state) == files_of(state)


@given(profile=profiles(), pods=PODS, leaving=LEAVING)
def test_pods_that_a_restart_leaves_keep_what_they_had(
    profile: NodeProfile, pods: tuple[Pod, ...], leaving: set[int]
) -> None:
    """Also where the kubelet turns pods away that ran, or gives ended init containers memory once more."""
    state = filled(profile, pods, leaving)
    done, _ = restarted(state, AS_IT_WAS, Standing())
    assume_it_can_start(state)
    assert not done.state.down_for
    before, after = state.held, done.state.held
    for uid in done.state.pods:
        assert after.cpu.assignments.get(uid) == before.cpu.assignments.get(uid)
        kept = before.memory.assignments.get(uid, {})
        assert kept.items() <= after.memory.assignments.get(uid, {}).items()
        assert after.devices.held.get(uid) == before.devices.held.get(uid)
    lost = [action for action in done.actions if isinstance(action, RejectPod)]
    plain = [one for one in lost if not state.pods[one.pod_uid].spec.init_containers]
    assert all(isinstance(one.because[0], NotEnoughWholeCores) for one in plain)


@given(profile=profiles(), other=profiles(), pods=PODS)
def test_a_rehearsal_foretells_the_restart_and_its_remedy_works(
    profile: NodeProfile, other: NodeProfile, pods: tuple[Pod, ...]
) -> None:
    state = filled(profile, pods, set())
    change = KubeletRestart(kubelet_configuration=other.spec.kubelet_configuration)
    parts = changed_parts(state.config.parts, change)
    assert isinstance(parts, Granted)
    files, there = files_of(state), tuple(state.pods.values())
    what = Running(pods=there, containers=running(there), held=written_in(files, parts.value))
    foretold = rehearse(parts.value, stored_in(files, parts.value), what)
    done, _ = restarted(state, change, Standing())
    assert [ending.because for ending in foretold.endings] == list(done.state.down_for)
    if foretold.remedy is not None:
        assert foretold.remedy.reserved_memory is None
        deleted = tuple(foretold.remedy.delete)
        with_deletion = KubeletRestart(
            kubelet_configuration=other.spec.kubelet_configuration, deleted_files=deleted
        )
        done, _ = restarted(state, with_deletion, Standing())
        foretold = foretold.remedy.then
    if foretold.starts:
        assert not done.state.down_for
        assert {fate.pod.uid for fate in foretold.fates if not fate.is_lost} == set(done.state.pods)
