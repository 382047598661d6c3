import pytest

from nodewright.core.topology import TopologyManager, manager_for, own_affinity
from nodewright.core.topology.own import (
    Alignment,
    Manner,
    Ruling,
    TopologyPolicy,
    Unfit,
    topology_choice,
    topology_policy,
)
from nodewright.core.topology.pod_wish import POLICY, SCOPE, pod_wish
from nodewright.model.hints import Hint, HintList, Offer
from nodewright.model.objects import ObjectMeta, Pod
from nodewright.model.policies import PolicyError
from nodewright.model.topology_reasons import HintsMerged, JudgedBy, NoCommonNUMA, PodUnfit
from nodewright.model.verdict import Granted, Refused
from nodewright.values.idset import NUMASet

TWO_NODES = TopologyManager(policy="best-effort", numa=NUMASet.of(0, 1))
SECOND = HintList((Hint(NUMASet.of(1), preferred=True),))
ASKED = Alignment(pod=Pod(), container="app", offers=(Offer("cpu", {"cpu": SECOND}),), manager=TWO_NODES)


def saying(ruling: object) -> TopologyPolicy:
    def answer(asked: Alignment) -> Ruling:
        if isinstance(ruling, Exception):
            raise ruling
        return ruling  # type: ignore[return-value]  # what people may write

    return topology_policy("mine")(answer)


def choosing(manner: object) -> TopologyPolicy:
    def answer(pod: Pod, usual: Manner) -> Manner | Unfit:
        if isinstance(manner, Exception):
            raise manner
        return manner  # type: ignore[return-value]  # what people may write

    return topology_choice("mine")(answer)


def hint(*numa: int) -> Hint:
    return Hint(NUMASet.of(*numa), preferred=False)


def test_the_evidence_says_who_judged_and_what_he_said() -> None:
    done = own_affinity(saying(Ruling(hint(0), admit=True, said="it is nearer")), ASKED, pod_level=False)
    assert isinstance(done, Granted)
    (evidence,) = done.because
    assert isinstance(evidence, HintsMerged)
    assert done.value == hint(0)
    assert (evidence.policy, evidence.judged_by) == ("mine", JudgedBy(policy="mine", said="it is nearer"))


def test_a_ruling_that_does_not_admit_is_a_refusal_with_the_hint() -> None:
    done = own_affinity(saying(Ruling(hint(0, 1), admit=False)), ASKED, pod_level=True)
    assert isinstance(done, Refused)
    (refusal,) = done.because
    assert isinstance(refusal, NoCommonNUMA)
    assert (refusal.container, refusal.pod_level, refusal.merged.hint) == ("app", True, hint(0, 1))


def test_a_policy_can_ask_what_the_kubelets_would_say() -> None:
    assert ASKED.as_kubelet("single-numa-node").hint == Hint(NUMASet.of(1), preferred=True)
    assert ASKED.as_kubelet("none") == Ruling(Hint(None, preferred=False), admit=True)
    with pytest.raises(ValueError, match="the kubelet has no topology policy 'strict': none, best-effort"):
        ASKED.as_kubelet("strict")


@pytest.mark.parametrize(
    ("ruling", "said"),
    [
        (Ruling(hint(), admit=True), "answers with no NUMA node at all"),
        (Ruling(hint(1, 2), admit=True), "answers NUMA nodes 1-2, and the machine has 0-1"),
        (hint(0), "answers Hint(numa=NUMASet('0'), preferred=False), which is no Ruling"),
        (KeyError("x"), "fails on default/: KeyError: 'x' ("),
    ],
)
def test_what_cannot_be_is_an_error_with_the_policys_name(ruling: object, said: str) -> None:
    with pytest.raises(PolicyError) as caught:
        own_affinity(saying(ruling), ASKED, pod_level=False)
    assert str(caught.value).startswith(f"topology policy mine: {said}")


@pytest.mark.parametrize(
    ("manner", "said"),
    [
        (Manner("strict"), "the kubelet has no policy 'strict' with scope 'container'"),
        (Manner("none", "node"), "the kubelet has no policy 'none' with scope 'node'"),
        ("restricted", "answers 'restricted', which is no Manner and no Unfit"),
        (KeyError("x"), "fails on default/: KeyError: 'x' ("),
    ],
)
def test_a_choice_that_cannot_be_is_an_error_with_the_policys_name(manner: object, said: str) -> None:
    with pytest.raises(PolicyError) as caught:
        manager_for(TWO_NODES, choosing(manner), Pod())
    assert str(caught.value).startswith(f"topology policy mine: {said}")


def wished(**annotations: str) -> object:
    found = manager_for(TWO_NODES, pod_wish, Pod(metadata=ObjectMeta(annotations=annotations)))
    if isinstance(found, Refused):
        (reason,) = found.because
        assert isinstance(reason, PodUnfit)
        return reason.said
    return found.value.policy, found.value.scope, found.value.judged_by is not None


@pytest.mark.parametrize(
    ("annotations", "judged"),
    [
        ({}, ("best-effort", "container", False)),
        ({POLICY: "single-numa-node"}, ("single-numa-node", "container", True)),
        ({POLICY: "none"}, ("none", "container", True)),
        ({SCOPE: "pod"}, ("best-effort", "pod", True)),
        ({POLICY: "restricted", SCOPE: "pod"}, ("restricted", "pod", True)),
        (
            {POLICY: "strict"},
            f'annotation {POLICY} says "strict", not one of none, best-effort, restricted, single-numa-node',
        ),
        ({SCOPE: ""}, f'annotation {SCOPE} says "", not one of container, pod'),
    ],
)
def test_a_pods_annotations_choose_policy_and_scope(annotations: dict[str, str], judged: object) -> None:
    assert wished(**annotations) == judged


@pytest.mark.parametrize(
    ("name", "said"),
    [
        ("restricted", "is the name of one of the kubelet's own"),
        ("My Policy", "a name is of small letters, digits, dots and dashes"),
        ("", "a name is of small letters"),
    ],
)
def test_a_name_that_cannot_be_asked_for_is_none(name: str, said: str) -> None:
    with pytest.raises(ValueError, match=said):
        topology_policy(name)(lambda asked: asked.as_kubelet("none"))
