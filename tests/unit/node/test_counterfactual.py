"""The smallest change of each kind, on nodes where it can be worked out by hand."""

from typing import Any

import pytest
from msgspec.structs import replace

from nodewright.ask import Node
from nodewright.model.objects import Pod, Taint
from nodewright.model.profile import NodeProfile
from nodewright.node.counterfactual import Counterfactuals
from nodewright.render.suggestions import suggestion_text
from nodewright.testing.nodes import STATIC_CPUS, STATIC_MEMORY, a_profile
from nodewright.testing.objects import a_guaranteed_pod, a_pod, container, pod

RESTRICTED = {**STATIC_CPUS, "topologyManagerPolicy": "restricted"}
CRITICAL = 2_000_000_000


def others(profile: NodeProfile, asking: Pod, *before: Pod, budget: int = 5_000) -> Counterfactuals:
    node = Node.of(profile)
    for one in before:
        node = node.admit(one).node
    return node.explain(asking, budget=budget).others


def told(profile: NodeProfile, asking: Pod, *before: Pod) -> dict[str, str]:
    return {one.kind: suggestion_text(one) for one in others(profile, asking, *before).suggestions}


def with_facts(profile: NodeProfile, **spec: Any) -> NodeProfile:
    return replace(profile, spec=replace(profile.spec, **spec))


def test_who_gets_in_needs_no_change() -> None:
    assert others(a_profile(), a_pod("web", "1/1Gi")) == Counterfactuals()


def test_cpus_on_two_numa_nodes_are_not_two_on_one() -> None:
    """CPU 0 is reserved; 1-2 and 4-6 are taken, so 3 and 7 are free."""
    held = [a_guaranteed_pod("a", "2/1Gi"), a_guaranteed_pod("b", "3/1Gi")]
    found = told(a_profile(**RESTRICTED), a_guaranteed_pod("web", "2/1Gi"), *held)
    assert found == {
        "fewer CPUs": "container main: 1 CPU instead of 2",
        "not Guaranteed": (
            "container main: no CPU limit, so that the pod is Burstable and holds no CPUs or memory of its own"
        ),
        "a pod that leaves": "without the pod default/a (2 CPUs, 1Gi memory)",
        "topologyManagerPolicy": (
            "topologyManagerPolicy: best-effort instead of restricted (the node's 2 pods placed anew, in their order)"
        ),
        "cpuManagerPolicy": (
            "cpuManagerPolicy: none instead of static (the node's 2 pods placed anew, in their order)"
        ),
    }


def test_more_can_be_had_where_less_cannot() -> None:
    """Each NUMA node has 3 of 4 left: 4 would fit one if it were empty, 5 never would, so for 5 both are preferred."""
    node = Node.of(a_profile(**RESTRICTED))
    for name, cpus in (("a", 3), ("b", 1)):
        node = node.admit(a_guaranteed_pod(name, f"{cpus}/1Gi")).node
    asked = node.without("a").explain(a_guaranteed_pod("web", "4/1Gi"))
    found = {one.kind: suggestion_text(one) for one in asked.others.suggestions}
    assert found["more CPUs"] == "container main: 5 CPUs instead of 4"


def test_all_odd_containers_go_to_whole_cores_together() -> None:
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
    found = told(profile, asking)
    assert found["whole cores"] == "container app: 4 CPUs instead of 3; container log: 2 CPUs instead of 1"
    assert not {"fewer CPUs", "more CPUs"} & found.keys()
    assert found["full-pcpus-only"] == "cpuManagerPolicyOptions: without full-pcpus-only"


def test_a_share_of_a_cpu_is_measured_in_thousandths() -> None:
    """3 of 8 CPUs are left. A whole number would be pinned, which is another matter."""
    profile = a_profile(**STATIC_CPUS)
    held = a_pod("a", "cpu=4 memory=1Gi")
    assert told(profile, a_pod("web", "4500m/1Gi"), held)["fewer CPUs"] == (
        "container main: 3 CPUs instead of 4.5"
    )
    assert told(profile, a_guaranteed_pod("web", "4500m/1Gi"), held)["fewer CPUs"] == (
        "container main: 2.999 CPUs instead of 4.5"
    )


def test_memory_goes_down_to_what_one_numa_node_has_left() -> None:
    """4 GiB a node; 1 of node 0 is reserved, 2.5 are held, so half a GiB and 4 GiB are left."""
    profile = a_profile(
        **STATIC_CPUS, **STATIC_MEMORY, topologyManagerPolicy="single-numa-node", topologyManagerScope="pod"
    )
    held = a_guaranteed_pod("a", "1/2560Mi")
    found = told(profile, a_guaranteed_pod("web", "1/4200Mi"), held)
    assert found["less memory"] == "container main: memory 4Gi instead of 4200Mi"
    assert "fewer CPUs" not in found


def test_memory_that_nobody_places_goes_down_to_what_the_node_has_left() -> None:
    found = told(a_profile(), a_pod("web", "1/9Gi"))
    assert found == {"less memory": "container main: memory 8Gi instead of 9Gi"}


def test_an_amount_that_the_memory_manager_cannot_hold_is_written_otherwise() -> None:
    found = told(a_profile(**STATIC_CPUS, **STATIC_MEMORY), a_guaranteed_pod("web", "1/1.5Gi"))
    assert found["the same in whole bytes"] == "container main: memory written as 1536Mi"


def test_devices_and_other_pieces_go_down_to_what_is_free() -> None:
    gpus = {"example.com/gpu": "g0@0 g1@0 g2@1"}
    asking = a_guaranteed_pod("web", "cpu=1 memory=1Gi example.com/gpu=3")
    profile = a_profile(devices=gpus, **RESTRICTED)
    held = a_guaranteed_pod("a", "cpu=1 memory=1Gi example.com/gpu=1")
    found = told(profile, asking, held)
    assert found["fewer example.com/gpu"] == "container main: example.com/gpu 1 instead of 3"
    licences = with_facts(a_profile(), extended_resources={"example.com/licence": amount("4")})
    found = told(licences, a_guaranteed_pod("web", "cpu=1 example.com/licence=9"))
    assert found["fewer example.com/licence"] == "container main: example.com/licence 4 instead of 9"


def amount(text: str) -> Any:
    return container("c", f"cpu={text}").resources.requests["cpu"]


def test_pod_level_requests_go_down_too() -> None:
    asking = pod(container("app"), name="web", uid="web", whole="9/1Gi")
    assert told(a_profile(), asking)["fewer CPUs"] == "the pod's own resources: 8 CPUs instead of 9"
    pinned = a_profile(
        **RESTRICTED, topologyManagerScope="pod", featureGates={"PodLevelResourceManagers": True}
    )
    held = [a_guaranteed_pod("a", "2/1Gi"), a_guaranteed_pod("b", "3/1Gi")]
    found = told(pinned, pod(container("app"), name="web", uid="web", whole="2/1Gi"), *held)
    assert found["fewer CPUs"] == "the pod's own resources: 1 CPU instead of 2"
    assert found["not Guaranteed"].startswith("the pod's own resources: no CPU limit")


def test_a_request_of_a_container_stays_within_its_pods() -> None:
    """The pod's own 2 CPUs could go to 1, but a container asks for 2: the API server would refuse it."""
    asking = pod(container("app", "2/1Gi"), name="web", uid="web", whole="2/1Gi")
    held = a_pod("a", "7/1Gi")
    assert "fewer CPUs" not in told(a_profile(), asking, held)


def test_who_would_make_way_is_told() -> None:
    asking = a_pod("vip", "9/1Gi", priority=CRITICAL)
    found = told(a_profile(), asking, a_pod("a", "2/1Gi"))
    assert found["fewer CPUs"] == "container main: 8 CPUs instead of 9 (default/a preempted for it)"


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
def test_the_label_that_a_pod_wants_is_told(expression: tuple[str, str, str], text: str) -> None:
    profile = with_facts(a_profile(), labels={"zone": "a", "gen": "5"})
    assert told(profile, a_pod("web", **affinity(expression))) == {"labels of the node": text}


@pytest.mark.parametrize(("spec", "kind", "text"), PLACES)
def test_the_labels_of_a_node_selector_are_told(spec: dict[str, Any], kind: str, text: str) -> None:
    profile = with_facts(a_profile(), labels={"zone": "a"})
    assert told(profile, a_pod("web", **spec)) == {kind: text}


def test_terms_that_no_label_can_meet_have_no_remedy() -> None:
    unreadable = affinity(("zone", "Gt", "x"))
    assert told(a_profile(), a_pod("web", **unreadable)) == {}


def test_of_several_terms_the_one_with_the_fewest_labels_is_told() -> None:
    many = {"matchExpressions": [{"key": key, "operator": "Exists"} for key in ("a", "b")]}
    one = {"matchExpressions": [{"key": "c", "operator": "Exists"}]}
    field = {"matchFields": [{"key": "metadata.name", "operator": "In", "values": ["other"]}]}
    required = {"requiredDuringSchedulingIgnoredDuringExecution": {"nodeSelectorTerms": [many, field, one]}}
    asking = a_pod("web", affinity={"nodeAffinity": required})
    assert told(a_profile(), asking) == {"labels of the node": "the node with the label c"}


def test_a_taint_can_be_tolerated_or_taken_away() -> None:
    taints = (Taint(key="dedicated", value="db", effect="NoExecute"), Taint(key="bad", effect="NoExecute"))
    assert told(with_facts(a_profile(), taints=taints), a_pod("web")) == {
        "a toleration": "a toleration for dedicated=db:NoExecute, bad:NoExecute",
        "taints of the node": "the node without the taint dedicated=db:NoExecute, bad:NoExecute",
    }


def test_a_full_node_can_take_more_pods() -> None:
    found = told(a_profile(maxPods=1), a_pod("web"), a_pod("a"))
    assert found == {
        "a pod that leaves": "without the pod default/a (nothing requested)",
        "maxPods": "maxPods: 2 instead of 1",
    }


def test_a_sysctl_can_be_allowed_but_not_with_the_hosts_network() -> None:
    sysctl: dict[str, Any] = {"securityContext": {"sysctls": [{"name": "net.core.somaxconn", "value": "1"}]}}
    assert told(a_profile(), a_pod("web", **sysctl)) == {
        "allowedUnsafeSysctls": "allowedUnsafeSysctls with net.core.somaxconn"
    }
    allowed = a_profile(allowedUnsafeSysctls=["net.core.somaxconn"])
    assert told(allowed, a_pod("web", hostNetwork=True, **sysctl)) == {}


def test_a_port_comes_free_with_its_holder() -> None:
    ports = [{"name": "c", "ports": [{"containerPort": 80, "hostPort": 80, "protocol": "TCP"}]}]
    found = told(a_profile(), a_pod("web", containers=ports), a_pod("a", containers=ports))
    assert found == {"a pod that leaves": "without the pod default/a (nothing requested)"}


def test_a_setting_that_would_lose_another_pod_is_not_told() -> None:
    """Under single-numa-node `both` would go, who holds CPUs of two NUMA nodes; under restricted it stays."""
    profile = a_profile(**{**STATIC_CPUS, "topologyManagerPolicy": "best-effort"})
    found = others(profile, a_guaranteed_pod("web", "8/1Gi"), a_guaranteed_pod("both", "5/1Gi"))
    assert "topologyManagerPolicy" in found.in_vain


def test_a_spent_budget_is_told_and_nothing_that_is_not_proved() -> None:
    held = [a_guaranteed_pod("a", "2/1Gi"), a_guaranteed_pod("b", "3/1Gi")]
    asking = a_guaranteed_pod("web", "2/1Gi")
    none = others(a_profile(**RESTRICTED), asking, *held, budget=0)
    assert (none.suggestions, none.in_vain, none.decisions) == ((), (), 0)
    assert "fewer CPUs" in none.cut_short
    some = others(a_profile(**RESTRICTED), asking, *held, budget=1)
    assert [one.kind for one in some.suggestions] == ["fewer CPUs"]
