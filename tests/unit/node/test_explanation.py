"""What is said about a decision beside the decision: rounds, evidence, silences, defects."""

from typing import Any

import pytest
from msgspec.structs import replace

from nodewright.ask import Node
from nodewright.model.cpu_reasons import CPUsNotFree, KubeletHangs
from nodewright.model.hints import Hint
from nodewright.model.objects import Pod
from nodewright.model.profile import NodeProfile
from nodewright.model.shape import Shape, machine_of
from nodewright.node.evidence import DeviceSite, MemorySite
from nodewright.node.explanation import Explanation, ResourceView
from nodewright.node.step import Decision
from nodewright.testing.nodes import STATIC_CPUS, STATIC_MEMORY, a_profile
from nodewright.testing.objects import a_guaranteed_pod, a_pod, container, pod
from nodewright.values.idset import CPUSet, NUMASet

GPUS = {"example.com/gpu": "g0@0 g1@1", "example.com/any": "x"}
ALIGNED = {**STATIC_CPUS, **STATIC_MEMORY, "topologyManagerPolicy": "single-numa-node"}


def explained(profile: NodeProfile, asking: Pod, *before: Pod) -> Explanation:
    node = Node.of(profile)
    for one in before:
        node = node.admit(one).node
    return node.explain(asking)


def on(shape: Shape, **kubelet: Any) -> NodeProfile:
    profile = a_profile(**{**STATIC_CPUS, **kubelet})
    return replace(profile, spec=replace(profile.spec, machine_info=machine_of(shape)))


def views(found: Explanation) -> dict[str, ResourceView]:
    (only,) = found.rounds
    return {one.hints.resource or one.hints.provider: one for one in only.resources}


def test_a_decision_that_is_explained_is_the_decision() -> None:
    node = Node.of(a_profile(devices=GPUS, **ALIGNED))
    for asking in (a_guaranteed_pod("web", "2/1Gi"), a_guaranteed_pod("web", "5/1Gi"), a_pod("web")):
        answer, found = node.admit(asking), node.explain(asking)
        assert (found.step.decision, found.step.because) == (answer.decision, answer.because)


def test_each_manager_is_heard_and_who_has_what_is_told_by_name() -> None:
    old = a_guaranteed_pod("old", "cpu=2 memory=1Gi example.com/gpu=1")
    web = a_guaranteed_pod("web", "cpu=2 memory=1Gi example.com/gpu=1 example.com/any=1")
    found = explained(a_profile(devices=GPUS, **ALIGNED), web, old)
    seen = views(found)
    assert found.rounds[0].hint == Hint(NUMASet.of(1), preferred=True)
    assert {name: one.asked for name, one in seen.items()} == {
        "example.com/any": 1,
        "example.com/gpu": 1,
        "cpu": 2,
        "memory": 1 << 30,
    }
    assert seen["example.com/gpu"].hints.preferred == (NUMASet.of(1),)
    gpu = seen["example.com/gpu"].sites
    assert gpu is not None
    assert isinstance(gpu[0], DeviceSite)
    assert [(one.pod, one.devices) for one in gpu[0].holders] == [("default/old", ("g0",))]
    memory = seen["memory"].sites
    assert memory is not None
    assert isinstance(memory[0], MemorySite)
    assert [(one.pod, one.size) for one in memory[0].holders] == [("default/old", 1 << 30)]
    assert seen["example.com/any"].silence == "nowhere"
    assert seen["cpu"].enough_if_empty == 1
    assert found.combinations == 2, "memory alone leaves a choice between two single NUMA nodes"


SILENT: list[tuple[dict[str, Any], Pod, dict[str, str]]] = [
    (
        {"topologyManagerPolicy": "restricted"},
        a_guaranteed_pod("web", "1/1Gi"),
        {"cpu": "policy", "memory": "policy"},
    ),
    (ALIGNED, a_pod("web", "1/1Gi"), {"cpu": "class", "memory": "class"}),
    (ALIGNED, a_guaranteed_pod("web", "1500m/1Gi"), {"cpu": "not whole"}),
    (ALIGNED, a_guaranteed_pod("web", "1/1.5Gi"), {"memory": "inexact"}),
    (ALIGNED, a_guaranteed_pod("web", "1/7Gi"), {}),
    (ALIGNED, a_guaranteed_pod("web", "1/8Gi"), {"memory": "nothing fits"}),
    (
        {**ALIGNED, "topologyManagerScope": "pod"},
        pod(container("app"), name="web", uid="web", whole="1/1Gi"),
        {"cpu": "pod-level resources", "memory": "pod-level resources"},
    ),
]


@pytest.mark.parametrize(("config", "asking", "silent"), SILENT)
def test_why_a_manager_is_silent(config: dict[str, Any], asking: Pod, silent: dict[str, str]) -> None:
    seen = views(explained(a_profile(**config), asking))
    found = {name: one.silence for name, one in seen.items() if one.silence is not None}
    assert found == {"devices": "nothing asked", **silent}


def test_without_a_topology_manager_nobody_is_asked_for_hints() -> None:
    found = explained(a_profile(**STATIC_CPUS), a_guaranteed_pod("web", "2/1Gi"))
    assert found.rounds == ()
    assert found.placement is not None
    assert found.placement.containers[0].cpus == CPUSet.of(1, 2)


def test_a_forbidden_sysctl_keeps_the_managers_from_being_asked() -> None:
    sysctls = {"sysctls": [{"name": "vm.swappiness", "value": "1"}]}
    found = explained(a_profile(**ALIGNED), a_pod("web", securityContext=sysctls))
    assert (found.rounds, found.choices, found.placement) == ((), (), None)


def test_the_scope_pod_asks_once_for_all_containers() -> None:
    asking = pod(*(container(name, "2/1Gi", "2/1Gi") for name in ("a", "b")), name="web", uid="web")
    found = explained(a_profile(**ALIGNED, topologyManagerScope="pod"), asking)
    assert [(one.container, one.hint) for one in found.rounds] == [("", Hint(NUMASet.of(1), preferred=True))]
    assert views(found)["cpu"].asked == 4
    assert [container for container, _ in found.choices] == ["a", "b"]


def test_cpus_handed_out_twice_are_flagged_with_their_owners() -> None:
    """Two threads on some cores, one on others: the kubelet reckons one thread a core and takes the whole core."""
    hybrid = on(Shape(cores=2, threads=2, small_cores=4))
    found = explained(hybrid, a_guaranteed_pod("web", "2/64Mi"), a_guaranteed_pod("old", "1/64Mi"))
    (defect,) = found.defects
    assert defect.reason == CPUsNotFree(cpus=CPUSet.of(0))
    assert defect.reserved == CPUSet.of(0)
    other = found.without_defects
    assert other is not None
    assert other.placement is not None
    assert other.placement.containers[0].cpus == CPUSet.of(5, 6)


def test_a_kubelet_that_hangs_is_flagged_and_put_right() -> None:
    options = {"full-pcpus-only": "true", "distribute-cpus-across-numa": "true"}
    profile = on(
        Shape(numa_per_socket=4, cores=3, threads=2),
        reservedSystemCPUs="3,8,14,16,23",
        cpuManagerPolicyOptions=options,
    )
    found = explained(profile, a_guaranteed_pod("web", "14/64Mi"))
    assert found.step.decision is Decision.REFUSED
    assert isinstance(found.defects[0].reason, KubeletHangs)
    assert found.without_defects is not None
    assert found.without_defects.decision is Decision.ADMITTED
    assert "fewer CPUs" in {one.kind for one in found.others.suggestions}


def test_no_defects_are_flagged_where_they_are_avoided() -> None:
    hybrid = on(Shape(cores=2, threads=2, small_cores=4))
    avoiding = replace(hybrid, spec=replace(hybrid.spec, kubelet_defects="avoid"))
    found = explained(avoiding, a_guaranteed_pod("web", "2/64Mi"), a_guaranteed_pod("old", "1/64Mi"))
    assert (found.defects, found.without_defects) == ((), None)
