"""The kinds of change of a pod that could let it in, each smallest first."""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from functools import partial
from itertools import product

from nodewright.core.cpu.policy import StaticPolicy
from nodewright.core.memory.policy import StaticPolicy as StaticMemory
from nodewright.core.requests import QOSClass, qos_class, with_defaults
from nodewright.model.eviction_reasons import NodeUnderPressure
from nodewright.model.memory_reasons import MemoryRequestInexact
from nodewright.model.objects import Pod, ResourceList
from nodewright.model.reasons import Reason, UntoleratedTaints
from nodewright.model.resource_names import (
    CPU,
    HUGE_PAGES_PREFIX,
    MEMORY,
    in_order,
    is_huge_page,
    is_in_bytes,
)
from nodewright.node.changes import (
    Amount,
    AmountRewritten,
    AmountsRewritten,
    Change,
    CPULimitDropped,
    RequestsChanged,
    TaintsTolerated,
    amount_of,
)
from nodewright.node.counterfactual import Smallest, Trial, first_of, largest
from nodewright.node.memory_steps import memory_steps
from nodewright.node.providers import CPUs, Memory
from nodewright.node.state import NodeState
from nodewright.values.quantity import Quantity

MIB = 1 << 20
ODD_CONTAINERS = 6
"""Of more containers with odd counts, all go up or all go down."""


def request_kinds(state: NodeState, pod: Pod) -> Iterator[tuple[str, Smallest]]:
    """The changes of what the pod asks for."""
    asking = Asking.of(state, pod)
    if asking.odd:
        yield "whole cores", first_of(_whole_cores(asking))
    for name in sorted({name for one in asking.askers for name in one.requests}, key=in_order):
        kind = "fewer CPUs" if name == CPU else f"{'less' if is_in_bytes(name) else 'fewer'} {name}"
        yield kind, _least([_less(asking, one, name) for one in asking.askers if name in one.requests])
    if any(one.cpus for one in asking.askers):
        yield "more CPUs", first_of(_more_cpus(asking))
    if asking.holds_exclusively:
        yield "not Guaranteed", first_of(_without_limit(asking))


def other_kinds(pod: Pod, because: Sequence[Reason]) -> Iterator[tuple[str, Smallest]]:
    """The changes of a pod that the reasons themselves suggest."""
    for reason in because:
        if isinstance(reason, MemoryRequestInexact):
            yield "the same in whole bytes", first_of([_rewritten(with_defaults(pod))])
        if isinstance(reason, UntoleratedTaints):
            yield "a toleration", first_of([TaintsTolerated(taints=reason.taints)])
        if isinstance(reason, NodeUnderPressure):
            yield from _under_pressure(pod, reason)


def _under_pressure(pod: Pod, reason: NodeUnderPressure) -> Iterator[tuple[str, Smallest]]:
    """Where only best-effort pods are turned away: a toleration, or to be no such pod; of CPU the least there is."""
    if not reason.best_effort_only:
        return
    taints = tuple(condition.taint for condition in reason.conditions)
    yield "a toleration", first_of([TaintsTolerated(taints=taints)])
    for container in pod.spec.containers[:1]:
        least = Amount(container=container.name, resource=CPU, was=0, now=1)
        yield "a request", first_of([RequestsChanged(amounts=(least,))])


@dataclass(frozen=True, slots=True)
class Asker:
    """A container, or the pod itself, and what it asks for."""

    container: str
    """Empty: the pod itself."""
    requests: ResourceList
    has_cpu_limit: bool
    cpus: int
    """CPUs of its own."""

    def amount(self, resource: str) -> int:
        """How much it asks for, in the unit of `Amount`."""
        asked = self.requests[resource]
        return asked.milli_value() if resource == CPU else asked.value()

    def to(self, resource: str, now: int) -> Amount:
        """It asks for so much."""
        return Amount(container=self.container, resource=resource, was=self.amount(resource), now=now)


@dataclass(frozen=True, slots=True)
class Asking:
    """A pod that asks a node."""

    state: NodeState
    pod: Pod
    """With defaults."""
    askers: tuple[Asker, ...]
    """Containers in the order of the managers, then the pod itself, if it has resources of its own."""
    cpu_policy: StaticPolicy | None
    memory_is_placed: bool
    """Whether the pod's memory comes from certain NUMA nodes."""
    pins_whole_cpus: bool
    """Whether whole numbers of CPUs are exclusive."""

    @classmethod
    def of(cls, state: NodeState, pod: Pod) -> "Asking":
        """What the pod asks for, once the API server has filled in its defaults."""
        pod = with_defaults(pod)
        providers = state.config.managers.providers
        cpu = next((one.policy for one in providers if isinstance(one, CPUs)), None)
        memory = next((one.policy for one in providers if isinstance(one, Memory)), None)
        static = cpu if isinstance(cpu, StaticPolicy) else None
        wants = static.wants(pod) if static else None
        pins = wants is not None and wants.is_guaranteed and not wants.is_skipped
        blocks = memory.wants(pod) if isinstance(memory, StaticMemory) else None
        askers = [
            Asker(
                one.name,
                one.resources.requests,
                CPU in one.resources.limits,
                wants.container(one) if wants and pins else 0,
            )
            for one in (*pod.spec.init_containers, *pod.spec.containers)
        ]
        if pod.spec.resources is not None:
            level = pod.spec.resources
            whole = wants.whole_pod() if wants and pins and wants.is_pod_managed else 0
            askers.append(Asker("", level.requests, CPU in level.limits, whole))
        placed = blocks is not None and blocks.is_guaranteed and not blocks.is_skipped
        return cls(state, pod, tuple(askers), static, placed, pins)

    @property
    def odd(self) -> tuple[Asker, ...]:
        """Those who ask for part of a core, where only whole ones are given out."""
        if self.cpu_policy is None or not self.cpu_policy.options.full_pcpus_only:
            return ()
        per_core = self.cpu_policy.topology.cpus_per_core
        return tuple(one for one in self.askers if per_core and one.cpus % per_core)

    @property
    def holds_exclusively(self) -> bool:
        """Whether the pod, being Guaranteed, holds something for itself that others do not get."""
        exclusive = self.memory_is_placed or any(one.cpus for one in self.askers)
        return exclusive and qos_class(self.pod) is QOSClass.GUARANTEED


def _whole_cores(asking: Asking) -> list[Change]:
    """Every odd count rounded to whole cores: by as little as possible, rather up than down."""
    assert asking.cpu_policy is not None
    per_core = asking.cpu_policy.topology.cpus_per_core
    down = [one.cpus // per_core * per_core for one in asking.odd]
    up = [count + per_core for count in down]
    counts = product(*zip(down, up, strict=True)) if len(down) <= ODD_CONTAINERS else [tuple(down), tuple(up)]
    found = [
        tuple(one.to(CPU, count * 1000) for one, count in zip(asking.odd, chosen, strict=True))
        for chosen in counts
        if all(chosen)
    ]
    ordered = sorted(found, key=lambda amounts: (_by(amounts), -sum(one.now for one in amounts)))
    return [RequestsChanged(amounts=amounts) for amounts in ordered]


def _less(asking: Asking, asker: Asker, resource: str) -> Smallest:
    """Less of a resource for one container, in units that people would take."""
    was, to = asker.amount(resource), partial(_one_amount, asker, resource)
    if resource == CPU and asker.cpus:
        assert asking.cpu_policy is not None
        most = min(asker.cpus - 1, asking.cpu_policy.topology.num_cpus)
        return first_of(to(count * 1000) for count in range(most, 0, -1))
    if resource == CPU:
        # A whole number would pin it: another matter.
        return largest(lambda now: to(now - (asking.pins_whole_cpus and now % 1000 == 0)), was)
    if asking.memory_is_placed and (resource == MEMORY or is_huge_page(resource)):
        unit = _unit(resource)
        others = [
            one.amount(resource) for one in asking.askers if one is not asker and resource in one.requests
        ]
        return first_of(to(size) for size in memory_steps(asking.state, resource, others, unit) if size < was)
    if asking.state.held.devices.knows(resource):
        listed = asking.state.held.devices.lists.get(resource)
        most = min(was - 1, len(listed.devices) if listed else 0)
        return first_of(to(count) for count in range(most, 0, -1))
    unit = _unit(resource)
    return largest(lambda units: to(units * unit), -(-was // unit))


def _unit(resource: str) -> int:
    """Huge pages by the page, memory and storage by the mebibyte, everything else by the piece."""
    if is_huge_page(resource):
        return Quantity.parse(resource.removeprefix(HUGE_PAGES_PREFIX)).value()
    return MIB if is_in_bytes(resource) else 1


def _more_cpus(asking: Asking) -> Iterator[Change]:
    """More CPUs of its own for one container: odd, but larger requests may be preferred on more NUMA nodes."""
    assert asking.cpu_policy is not None
    for more in range(1, asking.cpu_policy.topology.num_cpus):
        for one in asking.askers:
            if one.cpus and one.cpus + more <= asking.cpu_policy.topology.num_cpus:
                yield _one_amount(one, CPU, (one.cpus + more) * 1000)


def _without_limit(asking: Asking) -> Iterator[Change]:
    """The limit on CPUs left out, where it is what makes the pod Guaranteed."""
    level = [one for one in asking.askers if not one.container]
    for one in level or asking.askers:
        if one.has_cpu_limit:
            yield CPULimitDropped(container=one.container)


def _rewritten(pod: Pod) -> Change:
    everybody = (*pod.spec.init_containers, *pod.spec.containers)
    asked = [(one.name, one.resources.requests) for one in everybody]
    if pod.spec.resources is not None:
        asked.append(("", pod.spec.resources.requests))
    amounts = (
        AmountRewritten(container=container, resource=name, now=str(amount_of(name, amount.value())))
        for container, requests in asked
        for name, amount in sorted(requests.items())
        if (name == MEMORY or is_huge_page(name)) and amount.as_int64() is None
    )
    return AmountsRewritten(amounts=tuple(amounts))


def _one_amount(asker: Asker, resource: str, now: int) -> Change:
    return RequestsChanged(amounts=(asker.to(resource, now),))


def _least(smallest: Sequence[Smallest]) -> Smallest:
    """The change of least extent among those that each of these finds; the first of equal ones."""

    def least(trial: Trial) -> Change | None:
        found = []
        for one in smallest:
            change = one(trial)
            if trial.spent:
                return None
            if change is not None:
                assert isinstance(change, RequestsChanged)
                found.append(change)
        return min(found, key=lambda change: _by(change.amounts), default=None)

    return least


def _by(amounts: Sequence[Amount]) -> int:
    return sum(abs(one.now - one.was) for one in amounts)
