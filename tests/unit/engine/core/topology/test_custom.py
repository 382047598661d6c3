import pytest

from nodewright.engine.core.topology.custom import (
    POLICY_ANNOTATION,
    SCOPE_ANNOTATION,
    MergeRequest,
    MergeResult,
    PolicyChoice,
    Rejection,
    TopologyPolicy,
    annotated_policy,
    custom_affinity,
    topology_choice,
    topology_manager_for,
    topology_policy,
)
from nodewright.engine.core.topology.manager_config import TopologyManager
from nodewright.model.kubernetes.objects import ObjectMeta, Pod
from nodewright.model.reasons.topology import HintsMerged, JudgedBy, NoCommonNUMA, PodUnfit
from nodewright.model.reasons.verdict import Granted, Refused
from nodewright.model.values.custom_policy import CustomPolicyError
from nodewright.model.values.idset import NUMASet
from nodewright.model.values.topology_hints import Hint, HintList, Offer

TWO_NODES = TopologyManager(policy="best-effort", numa=NUMASet.of(0, 1))
SECOND = HintList((Hint(NUMASet.of(1), preferred=True),))
ASKED = MergeRequest(pod=Pod(), container="app", offers=(Offer("cpu", {"cpu": SECOND}),), manager=TWO_NODES)


def saying(ruling: object) -> TopologyPolicy:
    def answer(asked: MergeRequest) -> MergeResult:
        if isinstance(ruling, Exception):
            raise ruling
        return ruling  # type: ignore[return-value]  # what people may write

    return topology_policy("mine")(answer)


def choosing(manner: object) -> TopologyPolicy:
    def answer(pod: Pod, usual: PolicyChoice) -> PolicyChoice | Rejection:
        if isinstance(manner, Exception):
            raise manner
        return manner  # type: ignore[return-value]  # what people may write

    return topology_choice("mine")(answer)


def hint(*numa: int) -> Hint:
    return Hint(NUMASet.of(*numa), preferred=False)


def test_the_evidence_names_the_policy_and_its_reason() -> None:
    done = custom_affinity(
        saying(MergeResult(hint(0), admit=True, reason="it is nearer")), ASKED, pod_level=False
    )
    assert isinstance(done, Granted)
    (evidence,) = done.because
    assert isinstance(evidence, HintsMerged)
    assert done.value == hint(0)
    assert (evidence.policy, evidence.judged_by) == ("mine", JudgedBy(policy="mine", said="it is nearer"))


def test_a_ruling_that_does_not_admit_is_a_refusal_with_the_hint() -> None:
    done = custom_affinity(saying(MergeResult(hint(0, 1), admit=False)), ASKED, pod_level=True)
    assert isinstance(done, Refused)
    (refusal,) = done.because
    assert isinstance(refusal, NoCommonNUMA)
    assert (refusal.container, refusal.pod_level, refusal.merged.hint) == ("app", True, hint(0, 1))


def test_a_policy_can_ask_what_the_kubelets_would_say() -> None:
    assert ASKED.as_kubelet("single-numa-node").hint == Hint(NUMASet.of(1), preferred=True)
    assert ASKED.as_kubelet("none") == MergeResult(Hint(None, preferred=False), admit=True)
    with pytest.raises(ValueError, match="the kubelet has no topology policy 'strict': none, best-effort"):
        ASKED.as_kubelet("strict")


@pytest.mark.parametrize(
    ("ruling", "said"),
    [
        (MergeResult(hint(), admit=True), "returned no NUMA node at all"),
        (MergeResult(hint(1, 2), admit=True), "returned NUMA nodes 1-2, but the machine has 0-1"),
        (hint(0), "returned Hint(numa=NUMASet('0'), preferred=False), which is no MergeResult"),
        (KeyError("x"), "fails on default/: KeyError: 'x' ("),
    ],
)
def test_what_cannot_be_is_an_error_with_the_policys_name(ruling: object, said: str) -> None:
    with pytest.raises(CustomPolicyError) as caught:
        custom_affinity(saying(ruling), ASKED, pod_level=False)
    assert str(caught.value).startswith(f"topology policy mine: {said}")


@pytest.mark.parametrize(
    ("manner", "said"),
    [
        (PolicyChoice("strict"), "the kubelet has no policy 'strict' with scope 'container'"),
        (PolicyChoice("none", "node"), "the kubelet has no policy 'none' with scope 'node'"),
        ("restricted", "returned 'restricted', which is neither a PolicyChoice nor a Rejection"),
        (KeyError("x"), "fails on default/: KeyError: 'x' ("),
    ],
)
def test_a_choice_that_cannot_be_is_an_error_with_the_policys_name(manner: object, said: str) -> None:
    with pytest.raises(CustomPolicyError) as caught:
        topology_manager_for(TWO_NODES, choosing(manner), Pod())
    assert str(caught.value).startswith(f"topology policy mine: {said}")


def chosen_policy(**annotations: str) -> object:
    topology_manager = topology_manager_for(
        TWO_NODES, annotated_policy, Pod(metadata=ObjectMeta(annotations=annotations))
    )
    if isinstance(topology_manager, Refused):
        (reason,) = topology_manager.because
        assert isinstance(reason, PodUnfit)
        return reason.said
    return (
        topology_manager.value.policy,
        topology_manager.value.scope,
        topology_manager.value.judged_by is not None,
    )


@pytest.mark.parametrize(
    ("annotations", "judged"),
    [
        ({}, ("best-effort", "container", False)),
        ({POLICY_ANNOTATION: "single-numa-node"}, ("single-numa-node", "container", True)),
        ({POLICY_ANNOTATION: "none"}, ("none", "container", True)),
        ({SCOPE_ANNOTATION: "pod"}, ("best-effort", "pod", True)),
        ({POLICY_ANNOTATION: "restricted", SCOPE_ANNOTATION: "pod"}, ("restricted", "pod", True)),
        (
            {POLICY_ANNOTATION: "strict"},
            f'annotation {POLICY_ANNOTATION} has the value "strict", not one of none, best-effort, restricted, single-numa-node',
        ),
        (
            {SCOPE_ANNOTATION: ""},
            f'annotation {SCOPE_ANNOTATION} has the value "", not one of container, pod',
        ),
    ],
)
def test_a_pods_annotations_choose_policy_and_scope(annotations: dict[str, str], judged: object) -> None:
    assert chosen_policy(**annotations) == judged


@pytest.mark.parametrize(
    ("name", "said"),
    [
        ("restricted", "is the name of a kubelet policy"),
        ("My Policy", "a name consists of lowercase letters, digits, dots and dashes"),
        ("", "a name consists of lowercase letters"),
    ],
)
def test_an_invalid_policy_name_is_refused(name: str, said: str) -> None:
    with pytest.raises(ValueError, match=said):
        topology_policy(name)(lambda merge_request: merge_request.as_kubelet("none"))
