from msgspec.structs import replace

from nodewright.engine.core.preemption.greedy import MissingAmount
from nodewright.engine.node.previews import PreemptionPreview
from nodewright.engine.node.step import Decision
from nodewright.model.hardware import MachineInfo
from nodewright.model.kubernetes.node_profile import ContainerAllocation, Device, NodeProfile, NodeProfileSpec
from nodewright.model.kubernetes.objects import Pod
from nodewright.predict.node import Node
from nodewright.testing.nodes import a_profile
from nodewright.testing.objects import a_guaranteed_pod, a_pod


def previewed(pod: Pod, *pods: Pod) -> PreemptionPreview:
    machine = MachineInfo(num_cores=2, num_physical_cores=2, num_sockets=1, memory_capacity=8 << 30)
    return Node.from_profile(NodeProfile(spec=NodeProfileSpec(machine_info=machine, pods=pods))).preview(pod)


def critical(cpu: str) -> Pod:
    return a_pod("critical", {"cpu": cpu}, priority=2_000_000_000)


def test_a_fitting_pod_has_no_candidates() -> None:
    preview = previewed(critical("1"), a_pod("web", {"cpu": "500m"}))
    assert (preview.step.decision, preview.missing, preview.candidates) == (Decision.ADMITTED, (), ())


def test_victims_are_listed_with_missing_amounts_and_candidates() -> None:
    preview = previewed(critical("1"), a_pod("web", {"cpu": 1}), a_pod("db", {"cpu": "700m"}))
    assert preview.missing == (MissingAmount("cpu", 700),)
    assert [candidate.pod.uid for candidate in preview.candidates] == ["web", "db"]
    assert preview.unmet == ()


def test_insufficient_candidates_are_listed_with_the_unmet_amounts() -> None:
    preview = previewed(critical("3"), a_pod("web", {"cpu": "500m"}))
    assert preview.step.decision is Decision.REFUSED
    assert preview.missing == (MissingAmount("cpu", 1500),)
    assert [candidate.pod.uid for candidate in preview.candidates] == ["web"]
    assert preview.unmet == (("cpu", 1000),)


def test_a_pod_that_is_not_critical_has_no_candidates() -> None:
    preview = previewed(a_pod("web", {"cpu": 3}), a_pod("db", {"cpu": 1}))
    assert (preview.critical, preview.missing, preview.candidates) == (False, (), ())


def test_allocated_unhealthy_devices_count_as_in_the_decision() -> None:
    devices = {"a.b/gpu": (Device("g0"), Device("g1", healthy=False), Device("g2"))}
    old = a_guaranteed_pod("old", "cpu=1 memory=1Gi a.b/gpu=2")
    held = [ContainerAllocation("old", "main", devices={"a.b/gpu": ("g0", "g1")})]
    profile = a_profile(1, 2, pods=[old], allocations=held)
    node = Node.from_profile(replace(profile, spec=replace(profile.spec, devices=devices)))
    request = {"cpu": 3, "a.b/gpu": 1}
    preview = node.preview(a_pod("critical", request, request, priority=2_000_000_000))
    assert preview.missing == (MissingAmount("cpu", 2000),)
