"""What a node does when its eviction manager goes over it."""

from typing import Any

from msgspec.structs import replace

from nodewright.ask import Node
from nodewright.core.eviction import Filesystems, NodeReclaim
from nodewright.model.eviction_reasons import EmptyDirOverLimit, NodeRanShort, VolumeUseMissing
from nodewright.model.objects import Pod
from nodewright.model.pressure import NodeCondition
from nodewright.model.profile import ImageFS
from nodewright.model.thresholds import Signal
from nodewright.model.usage import Usage
from nodewright.node.actions import AnnounceReclaim, EvictPod, ReclaimNode
from nodewright.node.events import KillFailed, PodArrived, UsageObserved
from nodewright.node.forecast import forecast
from nodewright.node.pressure import capacities_of, claims_of
from nodewright.node.state import NodeState
from nodewright.node.step import Decision, Step, step
from nodewright.render.messages import message
from nodewright.testing.nodes import a_profile
from nodewright.testing.objects import a_pod
from nodewright.testing.usage import a_reading, a_use

MIB = 1 << 20
EVICTION: dict[str, Any] = {"evictionHard": {"memory.available": "500Mi", "nodefs.available": "10%"}}


def node(*pods: Pod, **spec: Any) -> NodeState:
    profile = a_profile(numa=1, cpus=4, **EVICTION)
    return Node.of(replace(profile, spec=replace(profile.spec, pods=pods, **spec))).state


def seen(state: NodeState, usage: Usage | None, at_s: float = 0, **more: Any) -> Step:
    return step(state, UsageObserved(usage=usage, now_s=at_s, **more))


LOW = a_reading(a_use("web", "2Gi"), a_use("job", "1Gi"), memory="400Mi/16Gi")


def test_a_pod_is_ended_with_the_kubelets_reason_and_is_gone() -> None:
    taken = seen(node(a_pod("web"), a_pod("job")), LOW)
    announced, ended = taken.actions
    assert announced == AnnounceReclaim(resource="memory")
    assert isinstance(ended, EvictPod)
    assert (ended.pod_uid, ended.grace_period_s) == ("web", 1)
    assert isinstance(ended.because, NodeRanShort)
    assert taken.because == (ended.because,)
    assert list(taken.state.pods) == ["job"]
    assert list(step(taken.state, KillFailed(a_pod("web"))).state.pods) == ["job", "web"]


def test_new_pods_are_refused_until_the_transition_period_is_over() -> None:
    state = seen(node(), a_reading(memory="400Mi/16Gi")).state
    assert state.conditions == (NodeCondition.MEMORY_PRESSURE,)
    for at_s, decision in ((299, Decision.REFUSED), (300, Decision.ADMITTED)):
        later = seen(state, a_reading(memory="8Gi/16Gi"), at_s).state
        assert step(later, PodArrived(a_pod("new"))).decision is decision
        assert step(later, PodArrived(a_pod("burstable", "memory=1Mi"))).decision is Decision.ADMITTED


def test_the_node_gives_back_first_and_that_may_do() -> None:
    short = a_reading(a_use("web", rootfs="5Gi/1"), nodefs="5Gi/100Gi", imagefs="", imagefs_inodes="")
    enough = a_reading(nodefs="30Gi/100Gi")
    taken = seen(node(a_pod("web")), short, filesystems=Filesystems(), after=enough)
    assert taken.actions == (
        AnnounceReclaim(resource="ephemeral-storage"),
        ReclaimNode(what=NodeReclaim.CONTAINERS),
        ReclaimNode(what=NodeReclaim.IMAGES),
    )
    assert list(taken.state.pods) == ["web"]
    assert taken.relief is not None
    assert taken.relief.was_enough


def test_whoever_is_above_a_limit_of_its_own_goes_and_nothing_is_announced() -> None:
    volumes = [{"name": "data", "emptyDir": {"sizeLimit": "1Gi"}}]
    usage = a_reading(a_use("a", data="2Gi/1"), a_use("b", data="3Gi/1"))
    taken = seen(node(a_pod("a", volumes=volumes), a_pod("b", volumes=volumes)), usage)
    assert [type(one.because) for one in taken.actions if isinstance(one, EvictPod)] == [
        EmptyDirOverLimit
    ] * 2
    assert not taken.state.pods


def test_a_crash_of_the_kubelet_is_told_and_avoided_on_request() -> None:
    pod = a_pod("a", volumes=[{"name": "data", "emptyDir": {}}])
    usage = a_reading(a_use("a", data=""), memory="8Gi/16Gi")
    assert [type(one) for one in seen(node(pod), usage).because] == [VolumeUseMissing]
    assert seen(node(pod, kubelet_defects="avoid"), usage).because == ()


def test_stats_that_cannot_be_read_change_nothing() -> None:
    state = node(a_pod("web"))
    taken = seen(state, None)
    assert (taken.actions, list(taken.state.pods), taken.state.conditions) == ((), ["web"], ())


def test_a_pod_that_says_nothing_has_thirty_seconds_to_end() -> None:
    spec = a_pod("own").spec
    own = replace(a_pod("own"), spec=replace(spec, termination_grace_period_seconds=5))
    grace = {
        one.uid: one.pod.spec.termination_grace_period_seconds for one in claims_of(node(own, a_pod("web")))
    }
    assert grace == {"own": 5, "web": 30}


def test_a_profile_says_what_its_node_has_run_short_of() -> None:
    state = node(conditions=("PIDPressure", "DiskPressure"))
    assert state.conditions == (NodeCondition.DISK_PRESSURE, NodeCondition.PID_PRESSURE)
    taken = step(state, PodArrived(a_pod("new", "memory=1Gi")))
    assert message(taken.because[0]).message == "The node had condition: [DiskPressure PIDPressure]. "


def test_the_same_looks_give_the_same_actions() -> None:
    state = node(a_pod("web"), a_pod("job"))
    assert seen(state, LOW).actions == seen(state, LOW).actions
    assert seen(state, LOW).state == seen(state, LOW).state


def test_a_node_knows_how_much_it_has_of_what_is_watched() -> None:
    has = capacities_of(node(image_fs=ImageFS(capacity_bytes=7, inodes=5), pid_max=9).config)
    assert (has.imagefs, has.imagefs_inodes, has.processes) == (7, 5, 9)
    assert has.memory >= has.pods_memory > 0
    assert capacities_of(node().config).imagefs == 0


def test_a_forecast_ranks_for_what_is_short_or_for_what_is_asked() -> None:
    state = node(a_pod("web"), a_pod("job"))
    short = forecast(state, LOW, Filesystems())
    assert (short.signal, short.goes, [one.claim.uid for one in short.ranking]) == (
        Signal.MEMORY_AVAILABLE, True, ["web", "job"],
    )  # fmt: skip
    calm = forecast(state, a_reading(), Filesystems(), signal=Signal.PID_AVAILABLE)
    assert (calm.signal, calm.goes) == (Signal.PID_AVAILABLE, False)
