from msgspec.structs import replace

from nodewright.ask import Node
from nodewright.core.preemption import Missing
from nodewright.model.machine import MachineInfo
from nodewright.model.objects import Pod
from nodewright.model.profile import ContainerAllocation, Device, NodeProfile, NodeProfileSpec
from nodewright.node.preview import Preview
from nodewright.node.step import Decision
from nodewright.testing.nodes import a_profile
from nodewright.testing.objects import a_guaranteed_pod, a_pod


def previewed(pod: Pod, *others: Pod) -> Preview:
    machine = MachineInfo(num_cores=2, num_physical_cores=2, num_sockets=1, memory_capacity=8 << 30)
    return Node.of(NodeProfile(spec=NodeProfileSpec(machine_info=machine, pods=others))).preview(pod)


def critical(cpu: str) -> Pod:
    return a_pod("critical", {"cpu": cpu}, priority=2_000_000_000)


def test_a_pod_that_fits_looks_for_nobody() -> None:
    found = previewed(critical("1"), a_pod("web", {"cpu": "500m"}))
    assert (found.step.decision, found.missing, found.candidates) == (Decision.ADMITTED, (), ())


def test_victims_come_with_what_was_missing_and_all_who_could_have_gone() -> None:
    found = previewed(critical("1"), a_pod("web", {"cpu": 1}), a_pod("db", {"cpu": "700m"}))
    assert found.missing == (Missing("cpu", 700),)
    assert [one.pod.uid for one in found.candidates] == ["web", "db"]
    assert found.unmet == ()


def test_where_nobody_suffices_it_is_told_who_was_looked_at_and_what_stays_missing() -> None:
    found = previewed(critical("3"), a_pod("web", {"cpu": "500m"}))
    assert found.step.decision is Decision.REFUSED
    assert found.missing == (Missing("cpu", 1500),)
    assert [one.pod.uid for one in found.candidates] == ["web"]
    assert found.unmet == (("cpu", 1000),)


def test_a_pod_that_is_not_critical_looks_for_nobody() -> None:
    found = previewed(a_pod("web", {"cpu": 3}), a_pod("db", {"cpu": 1}))
    assert (found.critical, found.missing, found.candidates) == (False, (), ())


def test_devices_that_are_given_away_count_as_the_decision_counts_them_though_they_are_ill_now() -> None:
    devices = {"a.b/gpu": (Device("g0"), Device("g1", healthy=False), Device("g2"))}
    old = a_guaranteed_pod("old", "cpu=1 memory=1Gi a.b/gpu=2")
    held = [ContainerAllocation("old", "main", devices={"a.b/gpu": ("g0", "g1")})]
    profile = a_profile(1, 2, pods=[old], allocations=held)
    node = Node.of(replace(profile, spec=replace(profile.spec, devices=devices)))
    asked = {"cpu": 3, "a.b/gpu": 1}
    found = node.preview(a_pod("critical", asked, asked, priority=2_000_000_000))
    assert found.missing == (Missing("cpu", 2000),)
