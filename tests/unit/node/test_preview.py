from nodewright.ask import Node
from nodewright.core.preemption import Missing
from nodewright.model.machine import MachineInfo
from nodewright.model.objects import Pod
from nodewright.model.profile import NodeProfile, NodeProfileSpec
from nodewright.node.preview import Preview
from nodewright.node.step import Decision
from nodewright.testing.objects import a_pod


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
