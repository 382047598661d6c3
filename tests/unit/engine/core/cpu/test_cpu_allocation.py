from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

import pytest
from msgspec.structs import replace

from nodewright.engine.core.cpu.cpu_allocation import (
    CPUAllocation,
    allocate,
    allocate_pod,
    remove_container,
    without_stale_containers,
)
from nodewright.engine.core.cpu.cpu_policy import (
    CPUSettings,
    NoneCPUPolicy,
    StaticCPUPolicy,
    create_policy,
    validated_state,
)
from nodewright.engine.core.cpu.cpu_state import CPUState
from nodewright.engine.core.cpu.cpu_topology import CPUInfo, CPUTopology
from nodewright.engine.core.cpu.policy_options import CPUGates
from nodewright.model.kubernetes.objects import Pod
from nodewright.model.reasons.cpu import (
    CPUHolder,
    CPUsNotFree,
    CPUsOfNUMA,
    KubeletCrashes,
    KubeletHangs,
    NotEnoughCPUs,
    NotEnoughWholeCores,
    NotWholeCores,
    PodSharedPoolEmpty,
)
from nodewright.model.reasons.verdict import Granted, Refused
from nodewright.model.values.idset import CPUSet, NUMASet
from nodewright.model.values.quantity import Quantity
from nodewright.testing.objects import a_pod
from nodewright.testing.strategies import topology, topology_of_cpus

TWO_NODES = topology(sockets=2, cores=2)
"""0-1,4-5 and 2-3,6-7."""


def policy(
    machine: CPUTopology = TWO_NODES, *, reserved: str = "0", follow: bool = True, **options: bool
) -> StaticCPUPolicy:
    cpus = CPUSet.parse(reserved)
    verdict = create_policy(
        machine,
        CPUSettings(
            policy="static",
            options={name.replace("_", "-"): str(is_on).lower() for name, is_on in options.items()},
            reservation=Quantity.parse(str(len(cpus))),
            reserved_cpus=cpus,
            gates=CPUGates(alpha_options=True, pod_level_managers=True),
            follow_defects=follow,
        ),
    )
    assert isinstance(verdict, Granted)
    assert isinstance(verdict.value, StaticCPUPolicy)
    return verdict.value


def a_guaranteed(name: str, whole: str = "", init: Mapping[str, str] | None = None, **containers: str) -> Pod:
    """A pod whose containers ask for so many CPUs each; an init container called `side…` is a sidecar."""

    def spec(container: str, cpus: str) -> dict[str, object]:
        amounts = {"cpu": cpus, "memory": "1Gi"} if cpus else {}
        made: dict[str, object] = {"name": container, "resources": {"requests": amounts, "limits": amounts}}
        return made | ({"restartPolicy": "Always"} if container.startswith("side") else {})

    more: dict[str, Any] = {}
    if whole:
        level = {"cpu": whole, "memory": "8Gi"}
        more["resources"] = {"requests": level, "limits": level}
    return a_pod(
        name,
        containers=[spec(container, cpus) for container, cpus in containers.items()],
        initContainers=[spec(container, cpus) for container, cpus in (init or {}).items()],
        **more,
    )


@dataclass
class Node:
    """A policy and its state, driven by hand."""

    policy: StaticCPUPolicy
    state: CPUState

    @classmethod
    def of(cls, policy: StaticCPUPolicy) -> "Node":
        started = validated_state(policy, CPUState())
        assert isinstance(started, Granted)
        return cls(policy, started.value)

    def run(self, pod: Pod, container: str = "app", numa: str | None = None) -> str:
        """What the container gets, as text; a refusal as the names of its reasons."""
        return self.text(self.allocation(pod, container, numa))

    def allocation(self, pod: Pod, container: str = "app", numa: str | None = None) -> CPUAllocation:
        affinity = None if numa is None else NUMASet.parse(numa)
        result = next(
            each for each in (*pod.spec.init_containers, *pod.spec.containers) if each.name == container
        )
        done = allocate(self.policy, self.state, self.policy.cpu_requests(pod), result, affinity)
        self.state = done.state
        return done

    def run_pod(self, pod: Pod, numa: str | None = None) -> str:
        affinity = None if numa is None else NUMASet.parse(numa)
        done = allocate_pod(self.policy, self.state, self.policy.cpu_requests(pod), affinity)
        self.state = done.state
        return self.text(done)

    def text(self, done: CPUAllocation) -> str:
        match done.verdict:
            case Granted(value=None):
                return "shared"
            case Granted(value=cpus):
                return str(cpus)
            case Refused(because=because):
                return " ".join(type(reason).__name__ for reason in because)

    def remove(self, pod: str, container: str) -> None:
        self.state = remove_container(self.policy, self.state, pod, container)

    def held(self, pod: str) -> dict[str, str]:
        return {name: str(cpus) for name, cpus in self.state.assignments.get(pod, {}).items()}


def test_a_guaranteed_container_with_two_whole_cpus_gets_two_exclusive_ones() -> None:
    node = Node.of(policy())
    assert node.run(a_guaranteed("p", app="2")) == "1,5"
    assert node.state.default == CPUSet.parse("0,2-4,6-7")
    assert node.state.usable("p", "app") == CPUSet.of(1, 5)


def test_one_and_a_half_cpus_or_a_burstable_pod_share() -> None:
    node = Node.of(policy())
    assert node.run(a_guaranteed("p", app="1500m")) == "shared"
    assert node.run(a_pod("q", {"cpu": 2}), "main") == "shared"
    assert node.state == CPUState(TWO_NODES.cpus)
    assert node.state.usable("p", "app") == TWO_NODES.cpus


def test_under_the_policy_none_everybody_shares() -> None:
    wants = policy().cpu_requests(a_guaranteed("p", "4", app="2"))
    state = CPUState(TWO_NODES.cpus)
    container = wants.pod.spec.containers[0]
    assert allocate(NoneCPUPolicy(), state, wants, container, None) == CPUAllocation(state, Granted(None))
    assert allocate_pod(NoneCPUPolicy(), state, wants, None) == CPUAllocation(state, Granted(None))
    assert remove_container(NoneCPUPolicy(), state, "p", "app") is state


@pytest.mark.parametrize(
    ("numa", "cpus"), [("0", "1,4-5"), ("1", "2-3,6"), ("0-1", "1,4-5"), (None, "1,4-5"), ("5", "1,4-5")]
)
def test_cpus_come_from_the_affinity(numa: str | None, cpus: str) -> None:
    """CPU 0 is reserved, so node 0 is the fuller one and goes first where the affinity leaves the choice."""
    assert Node.of(policy()).run(a_guaranteed("p", app="3"), numa=numa) == cpus


def test_the_affinity_is_advice() -> None:
    assert Node.of(policy()).run(a_guaranteed("p", app="5"), numa="0") == "1-2,4-6"


def test_align_by_socket_widens_the_affinity_to_the_socket() -> None:
    machine = topology(sockets=2, numa_per_socket=2, cores=1)
    pod = a_guaranteed("p", app="3")
    narrow = Node.of(policy(machine))
    assert narrow.run(pod, numa="3") == "2-3,7"
    wide = Node.of(policy(machine, align_by_socket=True))
    assert wide.run(pod, numa="3") == "2-3,6"


def test_a_refusal_says_who_has_the_cpus() -> None:
    node = Node.of(policy())
    node.run(a_guaranteed("p", app="3"), numa="1")
    before = node.state
    done = node.allocation(a_guaranteed("q", app="5"))
    assert done.state is before
    node_0 = CPUsOfNUMA(numa=0, free=CPUSet.parse("1,4-5"), reserved=CPUSet.of(0), holders=())
    taken = CPUHolder(pod="p", container="app", cpus=CPUSet.parse("2-3,6"))
    node_1 = CPUsOfNUMA(numa=1, free=CPUSet.of(7), reserved=CPUSet(), holders=(taken,))
    assert done.verdict == Refused((NotEnoughCPUs(requested=5, available=4, where=(node_0, node_1)),))


def test_whole_cores_only_refuses_odd_requests_even_of_those_who_have_cpus() -> None:
    node = Node.of(policy(full_pcpus_only=True))
    done = node.allocation(a_guaranteed("p", app="3"))
    assert done.verdict == Refused((NotWholeCores(requested=3, cpus_per_core=2),))
    node.state = node.state.with_assignment("p", "app", CPUSet.parse("1-3"))
    assert node.run(a_guaranteed("p", app="3")) == "NotWholeCores"


def test_whole_cores_only_leaves_siblings_of_reserved_cpus_alone() -> None:
    node = Node.of(policy(full_pcpus_only=True))
    assert node.run(a_guaranteed("p", app="4")) == "2-3,6-7"
    done = node.allocation(a_guaranteed("q", app="4"))
    assert isinstance(done.verdict, Refused)
    (reason,) = done.verdict.because
    assert isinstance(reason, NotEnoughWholeCores)
    assert (reason.requested, reason.cpus_per_core, reason.available) == (4, 2, 2)
    assert [len(each.holders) for each in reason.where] == [0, 1]
    assert node.run(a_guaranteed("q", app="2")) == "1,5"


def test_whole_cores_of_no_cpus_crash_the_kubelet() -> None:
    odd = CPUTopology(3, 4, 1, 1, 1, tuple(CPUInfo(cpu, 0, 0, cpu, 0) for cpu in range(4)))
    node = Node.of(policy(odd, full_pcpus_only=True))
    done = node.allocation(a_guaranteed("p", app="2"))
    assert done.verdict == Refused((KubeletCrashes(divisor="CPUs per core"),))


def test_a_container_that_has_its_cpus_keeps_them() -> None:
    node = Node.of(policy())
    node.run(a_guaranteed("p", app="2"))
    before = node.state
    assert node.run(a_guaranteed("p", app="2"), numa="1") == "1,5"
    assert node.state == before


def test_init_containers_hand_their_cpus_on_and_sidecars_do_not() -> None:
    node = Node.of(policy())
    pod = a_guaranteed("p", init={"init": "2", "side": "1", "late": "2"}, app="3")
    assert node.run(pod, "init", "1") == "2,6"
    assert node.run(pod, "side", "1") == "2"
    assert node.run(pod, "late", "1") == "3,7"
    assert node.run(pod, "app", "1") == "3,6-7"
    assert node.state.default == CPUSet.parse("0-1,4-5")


def test_what_can_be_reused_is_forgotten_when_another_pod_comes() -> None:
    node = Node.of(policy())
    first = a_guaranteed("p", init={"init": "2"}, app="2")
    node.run(first, "init", "1")
    node.run(a_guaranteed("q", app="1"), "app", "0")
    assert node.run(first, "app", "1") == "3,7"


def test_released_cpus_are_shared_again_unless_a_sibling_has_them() -> None:
    node = Node.of(policy())
    pod = a_guaranteed("p", init={"init": "4"}, app="2")
    assert node.run(pod, "init", "1") == "2-3,6-7"
    assert node.run(pod, "app", "1") == "2,6"
    node.remove("p", "init")
    assert node.state.default == CPUSet.parse("0-1,3-5,7")
    node.remove("p", "app")
    node.remove("p", "app")
    assert node.state == replace(CPUState(TWO_NODES.cpus), reusable=node.state.reusable)


def test_stale_containers_are_removed() -> None:
    node = Node.of(policy())
    for name in ("p", "q"):
        node.run(a_guaranteed(name, app="2"))
    kept = without_stale_containers(node.policy, node.state, {"p": ["app"], "q": ["other"]})
    assert set(kept.assignments) == {"p"}
    assert kept.default == CPUSet.parse("0,2-4,6-7")


def test_on_irregular_machines_the_grant_says_whose_cpus_it_took() -> None:
    hybrid = topology_of_cpus([CPUInfo(cpu, 0, 0, cpu // 2 * 2 if cpu < 4 else cpu, 0) for cpu in range(8)])
    node = Node.of(policy(hybrid))
    done = node.allocation(a_guaranteed("p", app="2"))
    assert done.verdict == Granted(CPUSet.of(0, 1), (CPUsNotFree(cpus=CPUSet.of(0)),))
    sane = Node.of(policy(hybrid, follow=False))
    assert sane.run(a_guaranteed("p", app="2")) == "4-5"


def test_a_pod_with_cpus_as_a_whole_divides_them() -> None:
    node = Node.of(policy())
    pod = a_guaranteed("p", "4", {"early": "3", "side": "1", "share": "", "side2": ""}, app="1", other="")
    assert node.run_pod(pod, "1") == "2-3,6-7"
    assert node.held("p") == {
        "early": "2-3,6",
        "side": "2",
        "share": "3,6-7",
        "side2": "3,7",
        "app": "6",
        "other": "3,7",
    }
    assert node.state.default == CPUSet.parse("0-1,4-5")
    for container in ("early", "share", "side", "side2", "app"):
        node.remove("p", container)
        assert node.state.default == CPUSet.parse("0-1,4-5")
    node.remove("p", "other")
    assert node.state == CPUState(TWO_NODES.cpus)


def test_a_pod_as_a_whole_is_refused_like_a_container() -> None:
    node = Node.of(policy(full_pcpus_only=True))
    assert node.run_pod(a_guaranteed("p", "3", app="1")) == "NotWholeCores"
    assert node.run_pod(a_guaranteed("p", "8", app="1")) == "NotEnoughWholeCores"
    assert Node.of(policy()).run_pod(a_guaranteed("p", "8", app="1")) == "NotEnoughCPUs"
    assert Node.of(policy()).run_pod(a_guaranteed("p", "1500m", app="1")) == "shared"


def test_a_pod_that_leaves_nothing_to_share_is_refused() -> None:
    wants = policy().cpu_requests(a_guaranteed("p", "2", app="2", other=""))
    done = allocate_pod(policy(), CPUState(TWO_NODES.cpus), wants, None)
    fault = PodSharedPoolEmpty(pod_cpus=2, exclusive=2, init=False)
    assert done == CPUAllocation(CPUState(TWO_NODES.cpus), Refused((fault,)))


@pytest.mark.parametrize("where", ["init", "app"])
def test_a_pod_whose_cpus_cannot_be_divided_keeps_them_as_the_kubelet_has_it(where: str) -> None:
    pod = a_guaranteed("p", "2", {"init": "3"} if where == "init" else {}, app="3" if where == "app" else "1")
    node = Node.of(policy())
    assert node.run_pod(pod) == "NotEnoughCPUs CPUsStranded"
    assert node.state.pods == {"p": CPUSet.of(1, 5)}
    assert node.state.default == CPUSet.parse("0,2-4,6-7")
    sane = Node.of(policy(follow=False))
    assert sane.run_pod(pod) == "NotEnoughCPUs"
    assert sane.state == CPUState(TWO_NODES.cpus)


def test_a_pod_that_kept_its_cpus_is_named_as_their_holder() -> None:
    node = Node.of(policy())
    node.run_pod(a_guaranteed("p", "2", app="3"))
    node.run(a_guaranteed("q", app="1"), numa="1")
    holders = [CPUHolder(pod="p", container="", cpus=CPUSet.of(1, 5))]
    holders.append(CPUHolder(pod="q", container="app", cpus=CPUSet.of(2)))
    assert list(node.state.holders()) == holders


@pytest.mark.parametrize("numa", [None, "0-3"])
def test_a_kubelet_that_hangs_gives_nothing(numa: str | None) -> None:
    machine = topology(numa_per_socket=4, cores=3)
    node = Node.of(policy(machine, full_pcpus_only=True, distribute_cpus_across_numa=True))
    node.state = node.state.with_default(CPUSet.parse("0-2,4-7,9-13,15,17-22"))
    done = node.allocation(a_guaranteed("p", app="14"), numa=numa)
    assert isinstance(done.verdict, Refused)
    assert done.verdict.because == (KubeletHangs(requested=14, group=2, numa=NUMASet.of(2, 3)),)


def test_a_pod_asked_for_twice_gets_cpus_twice_as_the_kubelet_has_it() -> None:
    pod = a_guaranteed("p", "2", app="1")
    node, sane = Node.of(policy()), Node.of(policy(follow=False))
    for each in (node, sane):
        each.run_pod(pod)
    assert node.run_pod(pod) == "2,6"
    assert len(node.state.default) == 4
    assert sane.run_pod(pod) == "1,5"
    assert len(sane.state.default) == 6
