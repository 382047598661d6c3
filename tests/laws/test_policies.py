"""What holds of policies that decide in the kubelet's place, ours and others'."""

from itertools import combinations
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st
from msgspec.structs import replace

from nodewright.engine.core.topology.custom import POLICY_ANNOTATION, SCOPE_ANNOTATION
from nodewright.engine.node.pod_admission import unallocated_resources
from nodewright.model.kubernetes.node_profile import NodeProfile
from nodewright.model.kubernetes.objects import Pod
from nodewright.model.reasons.topology import HintsMerged, NoCommonNUMA
from nodewright.policies import (
    CPUSet,
    CustomPolicyError,
    MergeRequest,
    MergeResult,
    PickRefusal,
    PickRequest,
    annotated_policy,
    cpu_picker,
    topology_policy,
    whole_caches,
)
from nodewright.predict.node import Node
from nodewright.testing.nodes import STATIC_CPUS, a_profile
from nodewright.testing.objects import a_guaranteed_pod
from nodewright.testing.policies import alignment_requests, annotated_pods, check_policy_laws, pick_requests

GPUS = {"a.b/gpu": "g0@0 g1@1 g2@1 g3@2"}
KUBELETS = st.tuples(
    st.sampled_from(("none", "best-effort", "restricted", "single-numa-node")),
    st.sampled_from(("container", "pod")),
)
AMOUNTS = st.fixed_dictionaries(
    {"cpu": st.integers(1, 6), "memory": st.just("1Gi")}, optional={"a.b/gpu": st.integers(1, 2)}
)


def of(policy: str, scope: str) -> NodeProfile:
    kubelet: dict[str, Any] = {"topologyManagerPolicy": policy, "topologyManagerScope": scope}
    return a_profile(3, 4, devices=GPUS, **STATIC_CPUS, **kubelet)


def annotated(pod: Pod, **wishes: str) -> Pod:
    return replace(pod, metadata=replace(pod.metadata, annotations=wishes))


def without_judge(found: Any) -> Any:
    """The evidence without the name of who chose the policy."""
    if isinstance(found, NoCommonNUMA):
        return ("refused", found.scope, found.container, without_judge(found.merged))
    return (found.policy, found.hint, found.offers) if isinstance(found, HintsMerged) else found


def decided(node: Node, pods: list[Pod]) -> list[Any]:
    """What became of pods that arrive one after the other."""
    result = []
    for pod in pods:
        answer = node.admit(pod)
        node = answer.node
        result.append((answer.decision, list(map(without_judge, answer.because)), answer.placement))
    return result


@pytest.mark.parametrize("policy", [annotated_policy, whole_caches], ids=lambda item: item.name)
def test_ours_hold_the_laws(policy: Any) -> None:
    check_policy_laws(policy, examples=40)


@given(KUBELETS, KUBELETS, st.lists(AMOUNTS, min_size=1, max_size=5))
def test_a_wish_is_judged_as_by_a_kubelet_that_is_configured_so(
    usual: tuple[str, str], wish: tuple[str, str], amounts: list[Any]
) -> None:
    plain = [a_guaranteed_pod(f"p{at}", asked) for at, asked in enumerate(amounts)]
    wishing = [annotated(pod, **{POLICY_ANNOTATION: wish[0], SCOPE_ANNOTATION: wish[1]}) for pod in plain]
    result = decided(Node.from_profile(of(*usual), policies=[annotated_policy]), wishing)
    configured = decided(Node.from_profile(of(*wish)), plain)
    for one, other in zip(result, configured, strict=True):
        assert one[:2] == other[:2]
        # Of a node without a topology manager no hints are shown, though it has some of other pods.
        assert str(one[2] and one[2].containers[0].cpus) == str(other[2] and other[2].containers[0].cpus)


@given(KUBELETS, st.lists(AMOUNTS, min_size=1, max_size=5))
def test_pods_without_a_wish_are_judged_as_if_there_were_no_policy(
    usual: tuple[str, str], amounts: list[Any]
) -> None:
    pods = [a_guaranteed_pod(f"p{at}", asked) for at, asked in enumerate(amounts)]
    assert decided(Node.from_profile(of(*usual), policies=[annotated_policy]), pods) == decided(
        Node.from_profile(of(*usual)), pods
    )


@topology_policy("as-usual")
def as_usual(asked: MergeRequest) -> MergeResult:
    return asked.as_kubelet(asked.manager.policy)


@given(KUBELETS.filter(lambda texts: texts[0] != "none"), st.lists(AMOUNTS, min_size=1, max_size=5))
def test_a_policy_that_asks_the_kubelets_gives_the_kubelets_answer(
    usual: tuple[str, str], amounts: list[Any]
) -> None:
    pods = [a_guaranteed_pod(f"p{at}", asked) for at, asked in enumerate(amounts)]
    mine = decided(Node.from_profile(of(*usual), policies=[as_usual]), pods)
    kubelets = decided(Node.from_profile(of(*usual)), pods)
    assert [(each[0], each[2]) for each in mine] == [(kubelet[0], kubelet[2]) for kubelet in kubelets]


@given(st.lists(AMOUNTS, max_size=8), st.data())
def test_pods_that_come_and_go_share_no_picked_cpus_and_leave_none_behind(
    amounts: list[Any], data: st.DataObject
) -> None:
    empty = node = Node.from_profile(of("best-effort", "container"), policies=[whole_caches])
    staying: list[str] = []
    for at, asked in enumerate(amounts):
        answer = node.admit(a_guaranteed_pod(f"p{at}", asked))
        node = answer.node
        if answer.admitted:
            staying.append(answer.pod.uid)
        leaving = data.draw(st.integers(0, 2 * len(staying)))
        if leaving < len(staying):
            node = node.without_pod(staying.pop(leaving))
        live = node.state.without_stale().held.cpu.assignments
        held = [cpus for pod in live.values() for cpus in pod.values()]
        assert all(one.isdisjoint(other) for one, other in combinations(held, 2))
    for uid in staying:
        node = node.without_pod(uid)
    assert unallocated_resources(node.state.without_stale()) == unallocated_resources(empty.state)


@given(pick_requests())
def test_whole_caches_breaks_a_cache_only_where_no_whole_one_would_do(asked: PickRequest) -> None:
    taken = whole_caches.pick(asked)
    assert isinstance(taken, CPUSet)
    caches = [CPUSet(mask) for mask in asked.topology.in_uncore_cache.values()]
    untouched = [cache for cache in caches if cache <= asked.free - taken]
    whole = [cache for cache in caches if cache <= taken]
    broken = CPUSet.from_ids(cpu for cpu in taken if not any(cpu in cache for cache in whole))
    assert not [cache for cache in untouched if len(cache) <= len(broken)]


@cpu_picker("forgetful")
def forgetful(asked: PickRequest) -> CPUSet:
    return CPUSet.from_ids(sorted(asked.free)[: asked.count - 1])


@cpu_picker("greedy")
def greedy(asked: PickRequest) -> CPUSet:
    return CPUSet.from_ids(sorted(asked.topology.cpus)[: asked.count])


@cpu_picker("broken")
def broken(asked: PickRequest) -> CPUSet | PickRefusal:
    if asked.count > 2:
        return PickRefusal("more than two are too many")
    raise ZeroDivisionError("nothing to share")


_ANSWERS = iter(range(1 << 30))


@cpu_picker("moody")
def moody(asked: PickRequest) -> CPUSet:
    start = next(_ANSWERS) % len(asked.free)
    cpus = sorted(asked.free)
    return CPUSet.from_ids((cpus[start:] + cpus[:start])[: asked.count])


@pytest.mark.slow
@pytest.mark.parametrize(
    ("policy", "said"),
    [
        (forgetful, "CPU picker forgetful: must return 1 of the free CPUs 0, but returns 0: none"),
        (
            greedy,
            "CPU picker greedy: must return 1 of the free CPUs 1, but returns CPUs 0, of which 0 are not free",
        ),
        (broken, "CPU picker broken: fails: ZeroDivisionError: nothing to share"),
    ],
    ids=lambda item: getattr(item, "name", ""),
)
def test_the_simplest_question_that_breaks_a_law_is_found(policy: Any, said: str) -> None:
    with pytest.raises(CustomPolicyError) as caught:
        check_policy_laws(policy)
    assert str(caught.value).startswith(said)


def test_another_answer_to_the_same_question_breaks_a_law() -> None:
    with pytest.raises(AssertionError, match="equal inputs got different answers"):
        check_policy_laws(moody)


@given(alignment_requests(), annotated_pods())
def test_strategies_ask_what_can_be_asked(asked: MergeRequest, pod: Pod) -> None:
    assert asked.as_kubelet("best-effort").admit
    assert all(resource for resource, _ in asked.hints())
    assert set(pod.metadata.annotations) <= {POLICY_ANNOTATION, SCOPE_ANNOTATION}
