"""Explanations in words: what the golden files do not show."""

from typing import Any

import pytest
from msgspec.structs import replace

from nodewright.ask import Node
from nodewright.model.objects import Pod
from nodewright.model.profile import NodeProfile
from nodewright.model.shape import Shape, machine_of
from nodewright.node.changes import Label, LabelsChanged, PodLeaves, Setting, SettingsChanged
from nodewright.render.explain import Told, explanation_text
from nodewright.render.explain_document import explanation_document
from nodewright.render.reasoning import duration, sets_text
from nodewright.render.suggestions import change_text
from nodewright.testing.nodes import STATIC_CPUS, STATIC_MEMORY, a_profile
from nodewright.testing.objects import a_guaranteed_pod, a_pod, container, pod
from nodewright.values.idset import NUMASet

ALIGNED = {**STATIC_CPUS, "topologyManagerPolicy": "best-effort"}


def told(profile: NodeProfile, asking: Pod, *before: Pod) -> Told:
    node = Node.of(profile)
    for one in before:
        node = node.admit(one).node
    return Told(explained=node.explain(asking), origin="Deployment web")


def text(profile: NodeProfile, asking: Pod, *before: Pod, wide: bool = False) -> str:
    return explanation_text([told(profile, asking, *before)], width=200, wide=wide)


def on(shape: Shape, **kubelet: Any) -> NodeProfile:
    profile = a_profile(**{**STATIC_CPUS, **kubelet})
    return replace(profile, spec=replace(profile.spec, machine_info=machine_of(shape)))


def test_where_a_pod_comes_from_is_told() -> None:
    assert text(a_profile(), a_pod("web", "1/1Gi")) == (
        "default/web (Deployment web): admitted\n\n"
        "  There is room, and nothing else speaks against it; it asks for no NUMA nodes\n"
    )


def test_an_open_verdict_has_its_reason_and_no_suggestions() -> None:
    asking = a_pod("web", securityContext={"appArmorProfile": {"type": "RuntimeDefault"}})
    lines = text(a_profile(), asking).splitlines()
    assert lines[0] == "default/web (Deployment web): undecided"
    assert lines[2:] == [
        "  What speaks against it",
        "    not judged: AppArmor (the pod has an AppArmor profile)",
    ]


def test_a_shortage_of_cpus_shows_who_has_them() -> None:
    found = text(a_profile(**STATIC_CPUS), a_guaranteed_pod("web", "4/1Gi"), a_guaranteed_pod("old", "4/1Gi"))
    assert (
        "    4 CPUs asked for, 3 can be given\n"
        "      NUMA node 0: CPUs 1-3 free; 0 reserved\n"
        "      NUMA node 1: no CPU free; default/old (main) has 4-7\n"
    ) in found


def test_a_shortage_of_devices_shows_who_has_them() -> None:
    gpus = {"example.com/gpu": "g0@0 g1@0,1 g2"}
    old, web = (a_guaranteed_pod(name, "cpu=1 memory=1Gi example.com/gpu=2") for name in ("old", "web"))
    assert (
        "    example.com/gpu: 2 asked for, 1 of 3 free\n"
        "      no NUMA node: 1 of 1 free\n"
        "      NUMA node 0: 0 of 1 free\n"
        "      NUMA nodes 0-1: 0 of 1 free\n"
        "      default/old (main) has g0, g1\n"
    ) in text(a_profile(devices=gpus), web, old)


def test_a_hint_that_is_not_preferred_is_taken_all_the_same_by_best_effort() -> None:
    crossed = a_profile(devices={"example.com/gpu": "g0@0", "example.com/nic": "n0@1"}, **ALIGNED)
    found = text(crossed, a_guaranteed_pod("web", "cpu=1 memory=1Gi example.com/gpu=1 example.com/nic=1"))
    assert (
        "together: {0-1}, not preferred, because no NUMA nodes are preferred by all: example.com/gpu prefers {0}, "
        "example.com/nic prefers {1}, cpu prefers {0} or {1}; best-effort takes it all the same"
    ) in " ".join(found.split())


def test_memory_of_several_numa_nodes_is_used_together() -> None:
    config = {**STATIC_CPUS, **STATIC_MEMORY, "topologyManagerPolicy": "best-effort"}
    found = text(a_profile(**config), a_guaranteed_pod("web", "1/1Gi"), a_guaranteed_pod("old", "1/5Gi"))
    assert "NUMA node 0: 0 of 3Gi free; used together as {0-1}; default/old (main) has 5Gi on {0-1}" in found


def test_what_the_pod_holds_as_a_whole_is_told() -> None:
    config = {
        **STATIC_CPUS,
        **STATIC_MEMORY,
        "topologyManagerPolicy": "restricted",
        "topologyManagerScope": "pod",
        "featureGates": {"PodLevelResourceManagers": True},
    }
    asking = pod(container("app", "1/1Gi", "1/1Gi"), container("log"), name="web", uid="web", whole="3/2Gi")
    found = text(a_profile(**config), asking)
    assert "the pod as a whole: CPUs 1-3, 2Gi memory on NUMA node 0\n    container app: CPU 1" in found


def test_known_defects_are_told_with_what_a_kubelet_without_them_would_do() -> None:
    hybrid = on(Shape(cores=2, threads=2, small_cores=4))
    found = text(hybrid, a_guaranteed_pod("web", "2/64Mi"), a_guaranteed_pod("old", "1/64Mi"))
    assert (
        "  Known defects of the kubelet\n"
        "    CPUs 0 are taken though they are not free (a known defect on irregular machines)\n"
        "      CPU 0: reserved for the system\n"
        "    a kubelet without them: admitted\n"
        "    container main would have CPUs 5-6\n"
    ) in found


def test_cpus_that_somebody_has_already_are_told() -> None:
    """The whole core is taken of which one thread came free and `c` has the other."""
    node = Node.of(on(Shape(cores=2, threads=2, small_cores=4)))
    for name, cpus in (("a", 1), ("b", 3), ("c", 3)):
        node = node.admit(a_guaranteed_pod(name, f"{cpus}/64Mi")).node
    explained = node.without("a").explain(a_guaranteed_pod("web", "2/64Mi"))
    assert "      CPU 1: default/c (main) has it already\n" in explanation_text([Told(explained=explained)])


def test_a_hanging_kubelet_is_told_and_what_would_do_instead() -> None:
    options = {"full-pcpus-only": "true", "distribute-cpus-across-numa": "true"}
    shape = Shape(numa_per_socket=4, cores=3, threads=2)
    profile = on(shape, reservedSystemCPUs="3,8,14,16,23", cpuManagerPolicyOptions=options)
    found = text(profile, a_guaranteed_pod("web", "14/64Mi"))
    assert found.startswith("default/web (Deployment web): refused (KubeletHangs)\n")
    assert "    a kubelet without them: admitted\n" in found


def test_a_stall_is_told_with_its_length() -> None:
    """255 sets of 8 NUMA nodes for each of three resources: what was measured to take 5.5 s."""
    each = " ".join(f"%s{at}@{at}" for at in range(8))
    devices = {f"example.com/{name}": each.replace("%s", name) for name in ("gpu", "nic")}
    asking = a_guaranteed_pod("web", "cpu=1 memory=1Gi example.com/gpu=1 example.com/nic=1")
    stalled = told(a_profile(numa=8, cpus=2, devices=devices, **ALIGNED), asking)
    found = explanation_text([stalled], width=200)
    assert (
        "  A real kubelet would be busy for 4.6 s to 6.8 s: it tries 16,581,375 combinations of hints\n"
        in found
    )
    document = explanation_document([stalled], Node.of(a_profile()).config, skipped={})
    assert document["pods"][0]["stall"] == {"leastSeconds": 4.643, "mostSeconds": 6.798, "warned": True}
    assert document["pods"][0]["from"] == "Deployment web"


def test_more_than_four_sets_are_cut_short() -> None:
    assert sets_text([NUMASet.of(at) for at in range(4)]) == "{0} or {1} or {2} or {3}"
    assert sets_text([NUMASet.of(at) for at in range(5)]).endswith("{3} or others")


@pytest.mark.parametrize(
    ("seconds", "said"),
    [(0.25, "0.2 s"), (119, "119.0 s"), (120, "2 min"), (3600, "1.0 h"), (86_400 * 1500, "1,500.0 days")],
)
def test_how_long_is_said_in_a_fitting_unit(seconds: float, said: str) -> None:
    assert duration(seconds) == said


def test_changes_are_told_with_what_they_replace() -> None:
    label = Label(key="zone", was="a", now="b")
    assert change_text(LabelsChanged(labels=(label,))) == "the node with the label zone=b instead of a"
    option = Setting(name="cpuManagerPolicyOptions", option="align-by-socket", was=None, now="true")
    assert change_text(SettingsChanged(settings=(option,))) == "cpuManagerPolicyOptions: with align-by-socket"
    leaving = PodLeaves(pod=a_pod("old"), requests={"cpu": 0})
    assert change_text(leaving) == "without the pod default/old (nothing requested)"
