"""The smallest change of each kind, on nodes where a reader can verify it by hand."""

from typing import Any

import pytest
from msgspec.structs import replace

from nodewright.engine.node.what_if.changes import Change
from nodewright.engine.node.what_if.counterfactuals import Counterfactuals, Trial
from nodewright.model.hardware import HugePages
from nodewright.model.kubernetes.node_profile import NodeProfile
from nodewright.model.kubernetes.objects import Pod, Taint
from nodewright.predict.explain.suggestion_text import suggestion_text
from nodewright.predict.node import Node
from nodewright.testing.nodes import STATIC_CPUS, STATIC_MEMORY, a_profile
from nodewright.testing.objects import a_guaranteed_pod, a_pod, container, pod

RESTRICTED = {**STATIC_CPUS, "topologyManagerPolicy": "restricted"}
CRITICAL = 2_000_000_000


def others(profile: NodeProfile, asking: Pod, *before: Pod, budget: int = 5_000) -> Counterfactuals:
    node = Node.from_profile(profile)
    for each in before:
        node = node.admit(each).node
    return node.explain(asking, budget=budget).counterfactuals


def suggestion_texts(profile: NodeProfile, asking: Pod, *before: Pod) -> dict[str, str]:
    return {
        suggestion.kind: suggestion_text(suggestion)
        for suggestion in others(profile, asking, *before).suggestions
    }


def with_facts(profile: NodeProfile, **spec: Any) -> NodeProfile:
    return replace(profile, spec=replace(profile.spec, **spec))


def test_an_admitted_pod_has_no_suggestions() -> None:
    assert others(a_profile(), a_pod("web", "1/1Gi")) == Counterfactuals()


def test_cpus_on_two_numa_nodes_get_suggestions_for_pod_and_node() -> None:
    """CPU 0 is reserved; 1-2 and 4-6 are taken, so 3 and 7 are free."""
    pods = [a_guaranteed_pod("a", "2/1Gi"), a_guaranteed_pod("b", "3/1Gi")]
    suggestions = suggestion_texts(a_profile(**RESTRICTED), a_guaranteed_pod("web", "2/1Gi"), *pods)
    assert suggestions == {
        "fewer CPUs": "container main: 1 CPU instead of 2",
        "not Guaranteed": (
            "container main: no CPU limit, so that the pod is Burstable and gets no exclusive CPUs or memory"
        ),
        "a pod that leaves": "without the pod default/a (2 CPUs, 1Gi memory)",
        "topologyManagerPolicy": (
            "topologyManagerPolicy: best-effort instead of restricted (reallocates the node's 2 pods in order; "
            "the pod is spread over NUMA nodes 0-1, so that some memory is remote)"
        ),
        "cpuManagerPolicy": (
            "cpuManagerPolicy: none instead of static (no pod of the node has exclusive CPUs; reallocates the node's "
            "2 pods in order: default/a, default/b get other allocations)"
        ),
    }


def test_a_larger_request_can_be_suggested() -> None:
    """Each NUMA node has 3 of 4 left: 4 would fit one if it were empty, 5 never would, so for 5 both are preferred."""
    node = Node.from_profile(a_profile(**RESTRICTED))
    for name, cpus in (("a", 3), ("b", 1)):
        node = node.admit(a_guaranteed_pod(name, f"{cpus}/1Gi")).node
    web = node.without_pod("a").explain(a_guaranteed_pod("web", "4/1Gi"))
    suggestions = {
        suggestion.kind: suggestion_text(suggestion) for suggestion in web.counterfactuals.suggestions
    }
    assert suggestions["more CPUs"] == (
        "container main: 5 CPUs instead of 4 (1 CPU more than requested, which no other pod can use; the pod is spread "
        "over NUMA nodes 0-1, so that some memory is remote)"
    )


def test_all_fractional_containers_are_rounded_to_whole_cores() -> None:
    """Two threads a core: four containers of one CPU are no whole cores, and one alone makes no difference."""
    config = {
        **STATIC_CPUS,
        "reservedSystemCPUs": "0,8",
        "cpuManagerPolicyOptions": {"full-pcpus-only": "true"},
    }
    smt = Node.open("2s-1n-4c-smt2").config.parts.machine
    profile = with_facts(a_profile(**config), machine_info=smt)
    asking = pod(
        container("app", "3/1Gi", "3/1Gi"), container("log", "1/1Gi", "1/1Gi"), name="web", uid="web"
    )
    suggestions = suggestion_texts(profile, asking)
    assert suggestions["whole cores"] == (
        "container app: 4 CPUs instead of 3; container log: 2 CPUs instead of 1 (2 CPUs more than requested, which no "
        "other pod can use)"
    )
    assert not {"fewer CPUs", "more CPUs"} & suggestions.keys()
    assert suggestions["full-pcpus-only"] == (
        "cpuManagerPolicyOptions: without full-pcpus-only (pods can share a core)"
    )


def test_fractional_cpu_requests_are_reduced_in_thousandths() -> None:
    """3 of 8 CPUs are left. A whole number would be pinned, which is another matter."""
    profile = a_profile(**STATIC_CPUS)
    other_pod = a_pod("a", "cpu=4 memory=1Gi")
    assert suggestion_texts(profile, a_pod("web", "4500m/1Gi"), other_pod)["fewer CPUs"] == (
        "container main: 3 CPUs instead of 4.5"
    )
    assert suggestion_texts(profile, a_guaranteed_pod("web", "4500m/1Gi"), other_pod)["fewer CPUs"] == (
        "container main: 2.999 CPUs instead of 4.5"
    )


def test_memory_is_reduced_to_the_free_memory_of_one_numa_node() -> None:
    """4 GiB a node; 1 of node 0 is reserved, 2.5 are held, so half a GiB and 4 GiB are left."""
    profile = a_profile(
        **STATIC_CPUS, **STATIC_MEMORY, topologyManagerPolicy="single-numa-node", topologyManagerScope="pod"
    )
    other_pod = a_guaranteed_pod("a", "1/2560Mi")
    suggestions = suggestion_texts(profile, a_guaranteed_pod("web", "1/4200Mi"), other_pod)
    assert suggestions["less memory"] == "container main: memory 4Gi instead of 4200Mi"
    assert "fewer CPUs" not in suggestions


def test_memory_without_a_memory_manager_is_reduced_to_the_nodes_free_memory() -> None:
    suggestions = suggestion_texts(a_profile(), a_pod("web", "1/9Gi"))
    assert suggestions == {"less memory": "container main: memory 8Gi instead of 9Gi"}


def test_an_inexact_amount_is_rewritten_as_an_integer() -> None:
    suggestions = suggestion_texts(
        a_profile(**STATIC_CPUS, **STATIC_MEMORY), a_guaranteed_pod("web", "1/1.5Gi")
    )
    assert suggestions["the same in whole bytes"] == "container main: memory written as 1536Mi"


def test_devices_and_extended_resources_are_reduced_to_the_free_number() -> None:
    gpus = {"example.com/gpu": "g0@0 g1@0 g2@1"}
    asking = a_guaranteed_pod("web", "cpu=1 memory=1Gi example.com/gpu=3")
    profile = a_profile(devices=gpus, **RESTRICTED)
    other_pod = a_guaranteed_pod("a", "cpu=1 memory=1Gi example.com/gpu=1")
    suggestions = suggestion_texts(profile, asking, other_pod)
    assert suggestions["fewer example.com/gpu"] == "container main: example.com/gpu 1 instead of 3"
    licences = with_facts(a_profile(), extended_resources={"example.com/licence": amount("4")})
    suggestions = suggestion_texts(licences, a_guaranteed_pod("web", "cpu=1 example.com/licence=9"))
    assert suggestions["fewer example.com/licence"] == "container main: example.com/licence 4 instead of 9"


def amount(text: str) -> Any:
    return container("c", f"cpu={text}").resources.requests["cpu"]


def test_pod_level_requests_are_reduced() -> None:
    asking = pod(container("app"), name="web", uid="web", whole="9/1Gi")
    assert (
        suggestion_texts(a_profile(), asking)["fewer CPUs"] == "the pod-level resources: 8 CPUs instead of 9"
    )
    pinned = a_profile(
        **RESTRICTED, topologyManagerScope="pod", featureGates={"PodLevelResourceManagers": True}
    )
    pods = [a_guaranteed_pod("a", "2/1Gi"), a_guaranteed_pod("b", "3/1Gi")]
    suggestions = suggestion_texts(pinned, pod(container("app"), name="web", uid="web", whole="2/1Gi"), *pods)
    assert suggestions["fewer CPUs"] == "the pod-level resources: 1 CPU instead of 2"
    assert suggestions["not Guaranteed"].startswith("the pod-level resources: no CPU limit")


def test_a_container_request_stays_within_the_pod_level() -> None:
    """The pod's own 2 CPUs could go to 1, but a container asks for 2: the API server would refuse it."""
    asking = pod(container("app", "2/1Gi"), name="web", uid="web", whole="2/1Gi")
    other_pod = a_pod("a", "7/1Gi")
    assert "fewer CPUs" not in suggestion_texts(a_profile(), asking, other_pod)


def test_a_suggestion_names_the_preempted_pods() -> None:
    asking = a_pod("vip", "9/1Gi", priority=CRITICAL)
    suggestions = suggestion_texts(a_profile(), asking, a_pod("a", "2/1Gi"))
    assert suggestions["fewer CPUs"] == "container main: 8 CPUs instead of 9 (preempts default/a)"


PLACES: list[tuple[dict[str, Any], str, str]] = [
    ({"nodeSelector": {"zone": "b"}}, "labels of the node", "the node with the label zone=b instead of a"),
    ({"nodeSelector": {"disk": ""}}, "labels of the node", "the node with the label disk"),
]


def affinity(*expressions: tuple[str, str, str]) -> Any:
    terms = [
        {"matchExpressions": [{"key": key, "operator": operator, "values": value.split() if value else []}]}
        for key, operator, value in expressions
    ]
    required = {"requiredDuringSchedulingIgnoredDuringExecution": {"nodeSelectorTerms": terms}}
    return {"affinity": {"nodeAffinity": required}}


LABELS = [
    (("zone", "In", "b c"), "the node with the label zone=b instead of a"),
    (("disk", "Exists", ""), "the node with the label disk"),
    (("zone", "NotIn", "a"), "the node without the label zone=a"),
    (("zone", "DoesNotExist", ""), "the node without the label zone=a"),
    (("gen", "Gt", "7"), "the node with the label gen=8 instead of 5"),
    (("gen", "Lt", "5"), "the node with the label gen=4 instead of 5"),
]


@pytest.mark.parametrize(("expression", "text"), LABELS)
def test_the_missing_label_is_suggested(expression: tuple[str, str, str], text: str) -> None:
    profile = with_facts(a_profile(), labels={"zone": "a", "gen": "5"})
    assert suggestion_texts(profile, a_pod("web", **affinity(expression))) == {"labels of the node": text}


@pytest.mark.parametrize(("spec", "kind", "text"), PLACES)
def test_the_labels_of_a_node_selector_are_suggested(spec: dict[str, Any], kind: str, text: str) -> None:
    profile = with_facts(a_profile(), labels={"zone": "a"})
    assert suggestion_texts(profile, a_pod("web", **spec)) == {kind: text}


def test_terms_that_no_label_satisfies_have_no_suggestion() -> None:
    unreadable = affinity(("zone", "Gt", "x"))
    assert suggestion_texts(a_profile(), a_pod("web", **unreadable)) == {}


def test_the_term_with_the_fewest_labels_is_suggested() -> None:
    many = {"matchExpressions": [{"key": key, "operator": "Exists"} for key in ("a", "b")]}
    document = {"matchExpressions": [{"key": "c", "operator": "Exists"}]}
    field = {"matchFields": [{"key": "metadata.name", "operator": "In", "values": ["other"]}]}
    required = {
        "requiredDuringSchedulingIgnoredDuringExecution": {"nodeSelectorTerms": [many, field, document]}
    }
    asking = a_pod("web", affinity={"nodeAffinity": required})
    assert suggestion_texts(a_profile(), asking) == {"labels of the node": "the node with the label c"}


def test_tolerating_or_removing_a_taint_is_suggested() -> None:
    taints = (Taint(key="dedicated", value="db", effect="NoExecute"), Taint(key="bad", effect="NoExecute"))
    assert suggestion_texts(with_facts(a_profile(), taints=taints), a_pod("web")) == {
        "a toleration": "a toleration for dedicated=db:NoExecute, bad:NoExecute",
        "taints of the node": "the node without the taint dedicated=db:NoExecute, bad:NoExecute",
    }


def test_a_larger_max_pods_is_suggested() -> None:
    suggestions = suggestion_texts(a_profile(maxPods=1), a_pod("web"), a_pod("a"))
    assert suggestions == {
        "a pod that leaves": "without the pod default/a (nothing requested)",
        "maxPods": "maxPods: 2 instead of 1",
    }


def test_allowing_a_sysctl_is_suggested_except_with_the_host_network() -> None:
    sysctl: dict[str, Any] = {"securityContext": {"sysctls": [{"name": "net.core.somaxconn", "value": "1"}]}}
    assert suggestion_texts(a_profile(), a_pod("web", **sysctl)) == {
        "allowedUnsafeSysctls": "allowedUnsafeSysctls with net.core.somaxconn"
    }
    allowed = a_profile(allowedUnsafeSysctls=["net.core.somaxconn"])
    assert suggestion_texts(allowed, a_pod("web", hostNetwork=True, **sysctl)) == {}


def test_removing_the_holder_of_a_port_is_suggested() -> None:
    ports = [{"name": "c", "ports": [{"containerPort": 80, "hostPort": 80, "protocol": "TCP"}]}]
    suggestions = suggestion_texts(a_profile(), a_pod("web", containers=ports), a_pod("a", containers=ports))
    assert suggestions == {"a pod that leaves": "without the pod default/a (nothing requested)"}


def test_a_setting_that_loses_another_pod_is_not_suggested() -> None:
    """Under single-numa-node `both` would go, who holds CPUs of two NUMA nodes; under restricted it stays."""
    profile = a_profile(**{**STATIC_CPUS, "topologyManagerPolicy": "best-effort"})
    suggestions = others(profile, a_guaranteed_pod("web", "8/1Gi"), a_guaranteed_pod("both", "5/1Gi"))
    assert "topologyManagerPolicy" in suggestions.ineffective


def test_an_exhausted_budget_is_reported_without_unproved_suggestions() -> None:
    other_pod = [a_guaranteed_pod("a", "2/1Gi"), a_guaranteed_pod("b", "3/1Gi")]
    asking = a_guaranteed_pod("web", "2/1Gi")
    none = others(a_profile(**RESTRICTED), asking, *other_pod, budget=0)
    assert (none.suggestions, none.ineffective, none.decisions) == ((), (), 0)
    assert "fewer CPUs" in none.cut_short
    some = others(a_profile(**RESTRICTED), asking, *other_pod, budget=1)
    assert [suggestion.kind for suggestion in some.suggestions] == ["fewer CPUs"]


def test_the_budget_is_of_work_not_of_decisions() -> None:
    """A decision about thousands of containers takes as long as hundreds about one."""
    containers = [container(f"c{number}", requests={"cpu": "10m"}) for number in range(2_000)]
    search = others(a_profile(**RESTRICTED), pod(*containers), budget=1_000)
    assert 0 < search.decisions <= 10
    assert "fewer CPUs" in search.cut_short


def test_nothing_is_tried_once_the_budget_is_spent(monkeypatch: pytest.MonkeyPatch) -> None:
    """Each further try would look at all containers again, although it is not made."""
    amounts = {"cpu": "1", "memory": "1Gi"}
    asking = pod(*(container(f"c{number}", requests=amounts) for number in range(300)))
    spent, admits = 0, Trial.admits

    def counted(trial: Trial, change: Change) -> bool:
        nonlocal spent
        fits = admits(trial, change)
        spent += trial.is_budget_spent
        return fits

    monkeypatch.setattr(Trial, "admits", counted)
    explained = Node.from_profile(a_profile(**RESTRICTED)).explain(asking)
    assert explained.largest is None
    assert spent <= 20


def with_huge_pages(profile: NodeProfile, *pages: int, page_size_kib: int = 1 << 20) -> NodeProfile:
    """The profile whose NUMA nodes have these numbers of huge pages."""
    machine = profile.spec.machine_info
    topology = tuple(
        replace(node, hugepages=(HugePages(page_size_kib, count),))
        for node, count in zip(machine.topology, pages, strict=True)
    )
    machine = replace(machine, topology=topology, hugepages=(HugePages(page_size_kib, sum(pages)),))
    return with_facts(profile, machine_info=machine)


def dpdk_pod(name: str, pages: int) -> Pod:
    amounts = {"cpu": "1", "memory": "64Mi", "hugepages-1Gi": f"{pages}Gi"}
    return pod(container("main", amounts, amounts), name=name)


PINNED_MEMORY = {**STATIC_MEMORY, "topologyManagerPolicy": "single-numa-node"}


@pytest.mark.parametrize(
    ("kubelet", "pages", "requested", "before", "suggestion"),
    [
        ({}, (0, 0), 2, 0, "2 pages of hugepages-1Gi on NUMA node 0 instead of 0"),
        ({}, (1, 1), 3, 0, "2 pages of hugepages-1Gi on NUMA node 0 instead of 1"),
        ({}, (2, 2), 2, 3, "3 pages of hugepages-1Gi on NUMA node 0 instead of 2"),
        (PINNED_MEMORY, (1, 1), 2, 0, "2 pages of hugepages-1Gi on NUMA node 0 instead of 1"),
        (PINNED_MEMORY, (0, 2), 3, 0, "3 pages of hugepages-1Gi on NUMA node 1 instead of 2"),
        (PINNED_MEMORY, (2, 2), 2, 2, None),
        ({}, (0, 0), 5, 0, None),
    ],
)
def test_more_huge_pages_on_one_numa_node(
    kubelet: dict[str, Any], pages: tuple[int, int], requested: int, before: int, suggestion: str | None
) -> None:
    """Of 4 GiB on each NUMA node; `before` pages are used by another pod; the fewest added pages are suggested."""
    profile = with_huge_pages(a_profile(**kubelet), *pages)
    earlier = [dpdk_pod("earlier", before)] if before else []
    suggestions = suggestion_texts(profile, dpdk_pod("dpdk", requested), *earlier)
    assert suggestions.get("more hugepages-1Gi", "").partition(" (")[0] == (suggestion or "")
