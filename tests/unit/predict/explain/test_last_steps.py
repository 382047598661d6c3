"""Never before not now, the largest pod of a shape, pairs of changes, and everything that is short."""

from typing import Any

import pytest
from msgspec.structs import replace

from nodewright.model.kubernetes.objects import Pod
from nodewright.predict.explain.alignment import NEVER, leading_sentences
from nodewright.predict.explain.explanation import Explanation
from nodewright.predict.explain.explanation_report import explained_pod, explanation_text
from nodewright.predict.explain.suggestion_text import largest_pod_texts, pair_text, shortage_text
from nodewright.predict.node import Node
from nodewright.testing.nodes import STATIC_CPUS, STATIC_MEMORY, a_profile
from nodewright.testing.objects import a_guaranteed_pod, a_pod, container, pod

SINGLE = {**STATIC_CPUS, "topologyManagerPolicy": "single-numa-node"}
GPUS = {"example.com/gpu": "g0@0 g1@0 g2@1 g3@1"}
CROSSED = {"example.com/gpu": "g0@0", "example.com/nic": "n0@1"}
WHOLE_CORES = {**STATIC_CPUS, "cpuManagerPolicyOptions": {"full-pcpus-only": "true"}}


def explained(
    asking: Pod, *before: Pod, devices: dict[str, str] | None = None, **kubelet: Any
) -> Explanation:
    node = Node.from_profile(a_profile(devices=devices, **kubelet))
    for each in before:
        node = node.admit(each).node
    return node.explain(asking)


MACHINE, CONFIGURED = "on this machine", "on this node as it is configured"
WANTS_ONE = "and single-numa-node can never admit"
NEVERS = [
    ("9/1Gi", {}, CONFIGURED, "cpu: 9 requested, the node has 8 for all pods"),
    (
        "9/9Gi",
        {},
        CONFIGURED,
        "9 requested, the node has 8 for all pods; memory: 9Gi requested, the node has 8Gi",
    ),
    ("8/1Gi", STATIC_CPUS, CONFIGURED, "cpu: 8 requested, the node has 7 for all pods"),
    (
        "cpu=1 ephemeral-storage=200Gi",
        {},
        CONFIGURED,
        "ephemeral-storage: 200Gi requested, the node has 100Gi",
    ),
    ("cpu=1 memory=1Gi hugepages-1Gi=2Gi", {}, CONFIGURED, "hugepages-1Gi: 2Gi requested, the node has none"),
    (
        "cpu=1 example.com/gpu=5",
        {},
        MACHINE,
        "5 example.com/gpu requested, and the machine has 4 for the container",
    ),
    ("5/1Gi", SINGLE, MACHINE, f"no NUMA node has more than 4 CPUs, {WANTS_ONE} 5 CPUs"),
    (
        "cpu=1 memory=1Gi example.com/gpu=3",
        SINGLE,
        MACHINE,
        f"no NUMA node has more than 2 example.com/gpu, {WANTS_ONE} 3 example.com/gpu",
    ),
    ("4/1Gi", SINGLE, "", ""),
    ("4/1Gi", WHOLE_CORES, "", ""),
]


@pytest.mark.parametrize(("amounts", "kubelet", "where", "sentence"), NEVERS)
def test_never_is_said_first_whatever_the_node_holds(
    amounts: str, kubelet: dict[str, Any], where: str, sentence: str
) -> None:
    held = [a_guaranteed_pod(name, "cpu=2 memory=1Gi example.com/gpu=1") for name in ("a", "b")]
    for before in ([], held):
        explanation = explained(a_guaranteed_pod("web", amounts), *before, devices=GPUS, **kubelet)
        sentences = list(leading_sentences(explanation))
        assert [NEVER in text for text in sentences[:1]] == [True] * bool(where) or not where
        assert all(sentences.count(text) == 1 for text in sentences)
        if where:
            assert f"never {where}, whatever is free: " in sentences[0]
            assert sentence in sentences[0]
        assert bool(explained_pod(explanation).never) is bool(where)


def test_memory_that_no_numa_node_has_is_never_admitted_to_one() -> None:
    asking = a_guaranteed_pod("web", "1/5Gi")
    for before in ((), (a_guaranteed_pod("old", "2/1Gi"),)):
        (first, *_) = leading_sentences(explained(asking, *before, **SINGLE, **STATIC_MEMORY))
        assert "never on this machine, whatever is free: " in first
        assert "memory" in first


def test_part_of_a_core_is_never_admitted_with_whole_cores_only() -> None:
    profile = Node.open("vm-4").state.config.parts.machine
    assert profile.num_cores == 4
    node = Node.from_profile(
        replace(a_profile(), spec=replace(a_profile(**WHOLE_CORES).spec, machine_info=profile))
    )
    (first,) = leading_sentences(node.explain(a_guaranteed_pod("web", "3/1Gi")))
    assert first.startswith("never on this machine, whatever is free: 3 CPUs requested, but full-pcpus-only")


@pytest.mark.parametrize("policy", ["single-numa-node", "restricted"])
def test_devices_that_no_numa_node_has_together_are_named(policy: str) -> None:
    asking = a_guaranteed_pod("web", "cpu=1 memory=1Gi example.com/gpu=1 example.com/nic=1")
    kubelet = {**SINGLE, "topologyManagerPolicy": policy}
    assert list(leading_sentences(explained(asking, devices=CROSSED, **kubelet))) == [
        (
            "container main: never on this machine, whatever is free: no NUMA node has 1 example.com/gpu and "
            f"1 example.com/nic together, and {policy} can never admit them"
        )
    ]


def test_unhealthy_devices_are_not_missing_for_ever() -> None:
    profile = a_profile(devices={"example.com/gpu": "g0@0 g1@0"}, **SINGLE)
    sick = tuple(replace(device, healthy=False) for device in profile.spec.devices["example.com/gpu"])
    profile = replace(profile, spec=replace(profile.spec, devices={"example.com/gpu": sick}))
    explanation = Node.from_profile(profile).explain(
        a_guaranteed_pod("web", "cpu=1 memory=1Gi example.com/gpu=2")
    )
    assert explanation.verdict == "refused"
    assert not any(NEVER in text for text in leading_sentences(explanation))


def test_a_refusal_for_other_reasons_than_amounts_has_no_last_step() -> None:
    explanation = explained(a_pod("picky", "1/1Gi", nodeName="else"))
    assert (explanation.never, explanation.largest, explanation.pairs) == ((), None, ())


# ---------------------------------------------------------------- the largest pod


def test_the_largest_pod_keeps_what_is_not_short() -> None:
    asking = a_guaranteed_pod("web", "cpu=3 memory=2Gi example.com/gpu=3")
    assert largest_pod_texts(explained(asking, devices=GPUS, **SINGLE)) == (
        "The largest pod of this shape that is admitted now: container main: 3 CPUs, 2Gi memory, 2 example.com/gpu",
    )


def test_the_largest_pod_of_an_empty_node_is_named_where_it_never_fits() -> None:
    before = a_guaranteed_pod("old", "cpu=1 memory=1Gi example.com/gpu=1"), a_guaranteed_pod("more", "5/6Gi")
    asking = a_guaranteed_pod("web", "cpu=9 memory=2Gi")
    assert largest_pod_texts(explained(asking, *before, devices=GPUS)) == (
        "The largest pod of this shape that is admitted now: container main: 2 CPUs, 1Gi memory",
        (
            "The largest pod of this shape that is admitted with no other pods on the node: container main: 8 CPUs, 2Gi "
            "memory"
        ),
    )


def test_several_containers_share_what_there_is() -> None:
    two = pod(container("a", "6/1Gi", "6/1Gi"), container("b", "3/1Gi", "3/1Gi"), name="two", uid="two")
    assert largest_pod_texts(explained(two, **STATIC_CPUS))[0].endswith(
        "container a: 5 CPUs, 1Gi memory; container b: 2 CPUs, 1Gi memory"
    )


def test_shared_cpus_are_largest_to_the_thousandth_and_not_whole() -> None:
    explanation = explained(a_guaranteed_pod("web", "2500m/1Gi"), a_pod("old", "6/1Gi"), **STATIC_CPUS)
    assert explanation.largest is not None
    assert [amount.now for amount in explanation.largest.amounts] == [999]


def test_without_a_budget_nothing_is_tried() -> None:
    node = Node.from_profile(a_profile())
    explanation = node.explain(a_guaranteed_pod("web", "9/9Gi"), budget=0)
    assert (explanation.largest, explanation.pairs) == (None, ())
    assert explanation.never


# ---------------------------------------------------------------- prices and sentences of several NUMA nodes


def test_containers_on_one_numa_node_each_are_not_spread() -> None:
    two = pod(container("a", "3/1Gi", "3/1Gi"), container("b", "4/1Gi", "4/1Gi"), name="two", uid="two")
    explanation = explained(two, a_guaranteed_pod("old", "1/1Gi"), **SINGLE)
    removal = next(
        each for each in explanation.counterfactuals.suggestions if each.kind == "a pod that leaves"
    )
    assert not removal.numa
    wider = explained(
        a_guaranteed_pod("web", "3/1Gi"), *(a_guaranteed_pod(n, "2/1Gi") for n in "ab"), **SINGLE
    )
    policy = next(each for each in wider.counterfactuals.suggestions if each.kind == "topologyManagerPolicy")
    assert str(policy.numa) == "0-1"


def test_numa_nodes_with_the_same_are_named_together() -> None:
    node = Node.from_profile(a_profile(numa=4, **SINGLE))
    for name, cpus in (("a", 2), ("b", 3), ("c", 3), ("d", 3)):
        node = node.admit(a_guaranteed_pod(name, f"{cpus}/1Gi")).node
    (text,) = leading_sentences(node.explain(a_guaranteed_pod("web", "3/1Gi")))
    assert text == "container main: no single NUMA node has 3 free CPUs: nodes 0-3 have 1 each"


def test_a_shortage_of_memory_begins_with_what_each_numa_node_has() -> None:
    held = a_guaranteed_pod("a", "1/2Gi"), a_guaranteed_pod("b", "3/3Gi")
    explanation = explained(a_guaranteed_pod("web", "1/2Gi"), *held, **SINGLE, **STATIC_MEMORY)
    assert next(leading_sentences(explanation)) == (
        "no single NUMA node has 2Gi free memory, and no set that may be used: node 0 has 1Gi, node 1 has 1Gi"
    )


# ---------------------------------------------------------------- pairs


def test_two_changes_are_proposed_where_none_alone_helps() -> None:
    before = a_guaranteed_pod("a", "5/2Gi"), a_guaranteed_pod("b", "1/3Gi")
    explanation = explained(a_guaranteed_pod("web", "6/7Gi"), *before, **STATIC_CPUS)
    texts = [pair_text(pair) for pair in explanation.pairs]
    assert texts[0] == "container main: 1 CPU instead of 6, and container main: memory 3Gi instead of 7Gi"
    assert any(text.startswith("without the pod default/b") and "pod default/a" in text for text in texts)
    text = explanation_text([explanation], width=100)
    assert "It needs 5 more CPUs and 4Gi more memory. Together (each pair tried on this node):" in " ".join(
        text.split()
    )
    assert explained_pod(explanation).pairs[0].second.suggestion.kind == "less memory"


def test_everything_that_is_short_is_listed_where_nothing_helps() -> None:
    asking = a_guaranteed_pod("upf", "cpu=8 memory=1Gi hugepages-1Gi=16Gi")
    explanation = explained(asking, a_guaranteed_pod("old", "2900m/1Gi"))
    assert shortage_text(explanation.short) == "2.9 more CPUs and 16 more pages of 1Gi"
    assert not explanation.pairs
    assert (
        "No single change among those tried would let it in. It needs 2.9 more CPUs and 16 more pages of 1Gi."
        in " ".join(explanation.text().split())
    )


def test_ineffective_kinds_are_listed_in_wide_output_only() -> None:
    explanation = explained(a_guaranteed_pod("web", "5/1Gi"), a_guaranteed_pod("a", "1/1Gi"), **SINGLE)
    assert "Also tried" not in explanation.text()
    assert "removing one pod" in explanation.text(wide=True)


def test_hints_and_merge_are_shown_in_wide_output_only() -> None:
    explanation = explained(a_guaranteed_pod("web", "5/1Gi"), **SINGLE)
    assert "merged: " not in explanation.text()
    assert "merged: " in explanation.text(wide=True)
