"""The actions of a node in a pass of its eviction manager."""

import gzip
import json
from pathlib import Path
from typing import Any

from msgspec.structs import replace

from nodewright.engine.core.eviction.eviction_state import NodeReclaim
from nodewright.engine.core.eviction.eviction_thresholds import NodeFilesystems
from nodewright.engine.node.actions import EvictPod, ReclaimNode, RecordReclaim
from nodewright.engine.node.events import KillFailed, PodAdded, UsageObserved
from nodewright.engine.node.eviction_pass import eviction_capacities, eviction_claims, hidden_huge_pages
from nodewright.engine.node.node_config import NodeConfig
from nodewright.engine.node.node_state import NodeState
from nodewright.engine.node.previews import node_eviction_forecast
from nodewright.engine.node.step import Decision, Step, step
from nodewright.model.kubernetes.eviction_thresholds import NodeCondition, Signal
from nodewright.model.kubernetes.node_profile import ImageFS
from nodewright.model.kubernetes.objects import Pod
from nodewright.model.kubernetes.stats_summary import StatsSummary
from nodewright.model.reasons.eviction import EmptyDirOverLimit, NodeRanShort, VolumeUseMissing
from nodewright.model.reasons.reason import kubelet_text
from nodewright.model.values.quantity import Quantity
from nodewright.predict.node import Node
from nodewright.testing.nodes import a_profile
from nodewright.testing.objects import a_pod
from nodewright.testing.usage import a_pod_usage, a_reading

MIB = 1 << 20
HUGE_PAGES = Path(__file__).parents[3] / "conformance" / "hugepage-adjust-1.37.jsonl.gz"
EVICTION: dict[str, Any] = {"evictionHard": {"memory.available": "500Mi", "nodefs.available": "10%"}}


def node(*pods: Pod, **spec: Any) -> NodeState:
    profile = a_profile(numa=1, cpus=4, **EVICTION)
    return Node.from_profile(replace(profile, spec=replace(profile.spec, pods=pods, **spec))).state


def observe_usage(state: NodeState, usage: StatsSummary | None, at_s: float = 0, **fields: Any) -> Step:
    return step(state, UsageObserved(usage=usage, now_s=at_s, **fields))


LOW = a_reading(a_pod_usage("web", "2Gi"), a_pod_usage("job", "1Gi"), memory="400Mi/16Gi")


def test_an_evicted_pod_has_the_kubelets_reason_and_is_removed() -> None:
    result = observe_usage(node(a_pod("web"), a_pod("job")), LOW)
    announced, ended = result.actions
    assert announced == RecordReclaim(resource="memory")
    assert isinstance(ended, EvictPod)
    assert (ended.pod_uid, ended.grace_period_s) == ("web", 1)
    assert isinstance(ended.because, NodeRanShort)
    assert result.because == (ended.because,)
    assert list(result.state.pods) == ["job"]
    assert list(step(result.state, KillFailed(a_pod("web"))).state.pods) == ["job", "web"]


def test_new_pods_are_refused_until_the_transition_period_is_over() -> None:
    state = observe_usage(node(), a_reading(memory="400Mi/16Gi")).state
    assert state.conditions == (NodeCondition.MEMORY_PRESSURE,)
    for at_s, decision in ((299, Decision.REFUSED), (300, Decision.ADMITTED)):
        later = observe_usage(state, a_reading(memory="8Gi/16Gi"), at_s).state
        assert step(later, PodAdded(a_pod("new"))).decision is decision
        assert step(later, PodAdded(a_pod("burstable", "memory=1Mi"))).decision is Decision.ADMITTED


def test_node_level_reclaim_precedes_eviction_and_can_suffice() -> None:
    short = a_reading(a_pod_usage("web", rootfs="5Gi/1"), nodefs="5Gi/100Gi", imagefs="", imagefs_inodes="")
    enough = a_reading(nodefs="30Gi/100Gi")
    result = observe_usage(
        node(a_pod("web")), short, filesystems=NodeFilesystems(), usage_after_reclaim=enough
    )
    assert result.actions == (
        RecordReclaim(resource="ephemeral-storage"),
        ReclaimNode(what=NodeReclaim.CONTAINERS),
        ReclaimNode(what=NodeReclaim.IMAGES),
    )
    assert list(result.state.pods) == ["web"]
    assert result.eviction_pass is not None
    assert result.eviction_pass.relieved_by_reclaim


def test_a_pod_above_its_storage_limit_is_evicted_without_a_node_event() -> None:
    volumes = [{"name": "data", "emptyDir": {"sizeLimit": "1Gi"}}]
    usage = a_reading(a_pod_usage("a", data="2Gi/1"), a_pod_usage("b", data="3Gi/1"))
    result = observe_usage(node(a_pod("a", volumes=volumes), a_pod("b", volumes=volumes)), usage)
    assert [type(action.because) for action in result.actions if isinstance(action, EvictPod)] == [
        EmptyDirOverLimit
    ] * 2
    assert not result.state.pods


def test_a_kubelet_crash_is_reported_and_avoidable() -> None:
    pod = a_pod("a", volumes=[{"name": "data", "emptyDir": {}}])
    usage = a_reading(a_pod_usage("a", data=""), memory="8Gi/16Gi")
    assert [type(each) for each in observe_usage(node(pod), usage).because] == [VolumeUseMissing]
    assert observe_usage(node(pod, kubelet_defects="avoid"), usage).because == ()


def test_stats_that_cannot_be_read_change_nothing() -> None:
    state = node(a_pod("web"))
    result = observe_usage(state, None)
    assert (result.actions, list(result.state.pods), result.state.conditions) == ((), ["web"], ())


def test_the_default_grace_period_is_thirty_seconds() -> None:
    spec = a_pod("own").spec
    own = replace(a_pod("own"), spec=replace(spec, termination_grace_period_seconds=5))
    grace = {
        claim.uid: claim.pod.spec.termination_grace_period_seconds
        for claim in eviction_claims(node(own, a_pod("web")))
    }
    assert grace == {"own": 5, "web": 30}


def test_a_profile_sets_the_node_conditions() -> None:
    state = node(conditions=("PIDPressure", "DiskPressure"))
    assert state.conditions == (NodeCondition.DISK_PRESSURE, NodeCondition.PID_PRESSURE)
    taken = step(state, PodAdded(a_pod("new", "memory=1Gi")))
    assert kubelet_text(taken.because[0]).message == "The node had condition: [DiskPressure PIDPressure]. "


def with_parts(config: NodeConfig, **parts: Any) -> NodeConfig:
    return replace(config, parts=replace(config.parts, **parts))


def test_since_1_37_huge_pages_are_not_available_memory() -> None:
    with gzip.open(HUGE_PAGES, "rt") as file:
        cases = [json.loads(line) for line in file]
    assert len(cases) == 120
    config = node().config
    older = node(kubernetes_version="1.36").config
    for case in cases:
        given, expect = case["input"]["memory"], case["expect"]["memory"]
        amounts = {name: Quantity.of(amount) for name, amount in case["input"]["capacity"].items()}
        resources = replace(config.resources, capacity=amounts)
        pages = hidden_huge_pages(with_parts(config, resources=resources))
        assert hidden_huge_pages(with_parts(older, resources=resources)) == 0
        if "availableBytes" not in given:
            assert expect == given
            continue
        assert max(given["availableBytes"] - pages, 0) == expect["availableBytes"], case["id"]
        if not expect["availableBytes"]:
            continue  # Then thresholds are met, whatever the capacity.
        total = given["availableBytes"] + given["workingSetBytes"]
        machine = replace(config.parts.machine, memory_capacity=total)
        capacities = eviction_capacities(with_parts(config, resources=resources, machine=machine))
        assert capacities.memory == case["expect"]["capacityForPercent"], case["id"]


def test_the_same_observations_give_the_same_actions() -> None:
    state = node(a_pod("web"), a_pod("job"))
    assert observe_usage(state, LOW).actions == observe_usage(state, LOW).actions
    assert observe_usage(state, LOW).state == observe_usage(state, LOW).state


def test_capacities_come_from_the_profile() -> None:
    capacities = eviction_capacities(node(image_fs=ImageFS(capacity_bytes=7, inodes=5), pid_max=9).config)
    assert (capacities.imagefs, capacities.imagefs_inodes, capacities.processes) == (7, 5, 9)
    assert capacities.memory >= capacities.pods_memory > 0
    assert eviction_capacities(node().config).imagefs == 0


def test_a_forecast_ranks_for_the_first_target_or_the_given_signal() -> None:
    state = node(a_pod("web"), a_pod("job"))
    short = node_eviction_forecast(state, LOW, NodeFilesystems())
    assert (short.signal, short.evicts, [eviction_candidate.active_pod.uid for eviction_candidate in short.ranking]) == (
        Signal.MEMORY_AVAILABLE, True, ["web", "job"],
    )  # fmt: skip
    calm = node_eviction_forecast(state, a_reading(), NodeFilesystems(), signal=Signal.PID_AVAILABLE)
    assert (calm.signal, calm.evicts) == (Signal.PID_AVAILABLE, False)
