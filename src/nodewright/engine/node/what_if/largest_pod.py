"""Whether a node can ever admit a pod, the largest pod of its shape that it admits, and all that it lacks for the pod."""

from collections.abc import Callable, Iterator, Sequence

import msgspec
from msgspec.structs import replace

from nodewright.engine.node.events import PodAdded
from nodewright.engine.node.node_state import NodeState, without_ungated_resources
from nodewright.engine.node.pod_admission import predicate_result
from nodewright.engine.node.restart.initial_node import initial_node
from nodewright.engine.node.step import Decision, step
from nodewright.engine.node.what_if.candidate_changes import RequestingPod, RequestOwner, step_of
from nodewright.engine.node.what_if.changes import RequestsChanged
from nodewright.engine.node.what_if.counterfactuals import Trial
from nodewright.model.kubernetes.objects import Pod
from nodewright.model.kubernetes.resource_names import CPU, resource_sort_key
from nodewright.model.reasons.cpu import NotEnoughCPUs, NotEnoughWholeCores, NotWholeCores
from nodewright.model.reasons.devices import NotEnoughDevices
from nodewright.model.reasons.memory import AffinityCannotGrow, NoNUMAFits
from nodewright.model.reasons.predicates import InsufficientResource
from nodewright.model.reasons.reason import Reason
from nodewright.model.reasons.topology import NoCommonNUMA
from nodewright.model.reasons.verdict import Refused

LARGEST_BUDGET = 1_000
"""Work of the search for a largest pod, as `BUDGET`."""
_SCALE = 1 << 10

_COUNTED = NotWholeCores | NotEnoughCPUs | NotEnoughWholeCores | NotEnoughDevices
"""The refusals that depend on amounts alone: other pods only add to them."""
_PLACED = NoCommonNUMA | NoNUMAFits | AffinityCannotGrow
"""The refusals that depend on where the pod's containers before are placed."""


def emptied_node(state: NodeState) -> NodeState | None:
    """The node without pods and conditions, with all its devices healthy; None: its kubelet would not start."""
    parts = state.config.parts
    devices = {
        name: tuple(replace(device, healthy=True) for device in listed)
        for name, listed in parts.facts.devices.items()
    }
    started = initial_node(replace(parts, facts=replace(parts.facts, devices=devices)))
    return None if isinstance(started, Refused) else started.value


def never_reasons(state: NodeState, pod: Pod) -> tuple[Reason, ...]:
    """Why the node can never admit the pod, whatever is free; empty if it can, or if that is not certain.

    ``pod`` is as stored. The kubelet's managers place one container after the other, so that a pod of several can be
    refused by an empty node and admitted by a fuller one: only reasons that other pods cannot change count.
    """
    empty = emptied_node(state)
    if empty is None:
        return ()
    devices = empty.config.facts.devices
    never: list[Reason] = [reason for reason in shortages(empty, pod) if reason.resource not in devices]
    result, managers = step(empty, PodAdded(pod)), empty.config.managers
    if result.decision is Decision.REFUSED and managers.custom_policy is None:
        is_placed_at_once = len(pod.spec.all_containers) == 1
        certain = _COUNTED | _PLACED if is_placed_at_once else _COUNTED
        never += [reason for reason in result.because[:1] if isinstance(reason, certain)]
    return tuple(never)


def shortages(state: NodeState, pod: Pod) -> tuple[InsufficientResource, ...]:
    """All amounts that the node lacks for the pod, whatever refuses it first."""
    verdict = predicate_result(state, without_ungated_resources(pod, state.config), state.held).verdict
    return tuple(reason for reason in verdict.because if isinstance(reason, InsufficientResource))


class RequestDimension(msgspec.Struct, frozen=True):
    """A request of one container, or of the pod level, as a number of steps."""

    owner: RequestOwner
    resource: str
    unit: int
    most: int
    """The number of steps that is requested, rounded down."""
    avoids_whole_cpus: bool
    """Whether a whole number of CPUs would be exclusive, which is another shape."""

    def amount(self, steps: int) -> int:
        """The amount of so many steps, in the unit of `Amount`."""
        was = self.owner.amount(self.resource)
        if steps == self.most and was >= self.unit and not self.owner.cpus:
            return was
        return steps * self.unit - (self.avoids_whole_cpus and steps * self.unit % 1000 == 0)


def largest_pod(state: NodeState, pod: Pod, *, budget: int = LARGEST_BUDGET) -> RequestsChanged | None:
    """The smaller requests with which the node admits the pod, so that no request alone can be a step larger.

    All requests are scaled by one factor, then each is raised as far as it can be, at most to what the pod requests.
    None: the node admits no pod of this shape, or the budget is exhausted.
    """
    trial = Trial(state.without_pod(pod.uid), pod, min(budget, LARGEST_BUDGET))
    dimensions = tuple(request_dimensions(RequestingPod.of(trial.state, pod)))
    search = _Search(trial, dimensions)
    scaled = search.scaled()
    if scaled is None:
        return None
    steps = search.raised(scaled)
    return None if trial.is_budget_spent else change_of_steps(dimensions, steps)


def smallest_refused(state: NodeState, pod: Pod) -> RequestsChanged | None:
    """The smallest requests of the shape that `largest_pod` tries, if the node refuses even these and they are smaller."""
    trial = Trial(state.without_pod(pod.uid), pod, LARGEST_BUDGET)
    dimensions = tuple(request_dimensions(RequestingPod.of(trial.state, pod)))
    smallest = change_of_steps(dimensions, [1] * len(dimensions))
    is_refused = bool(smallest.amounts) and not trial.admits(smallest) and not trial.is_budget_spent
    return smallest if is_refused else None


def request_dimensions(requester: RequestingPod) -> Iterator[RequestDimension]:
    """The requests of all containers and of the pod level, without those of 0."""
    static = requester.cpu_policy
    whole_cores = static is not None and static.options.full_pcpus_only
    for owner in requester.owners:
        for name in sorted(owner.requests, key=resource_sort_key):
            was = owner.amount(name)
            if was <= 0:
                continue
            unit = step_of(name)
            if name == CPU and owner.cpus:
                unit = 1000 * (static.topology.cpus_per_core if static and whole_cores else 1)
            elif was < unit:
                unit = 1
            avoids = name == CPU and requester.pins_whole_cpus and not owner.cpus
            yield RequestDimension(owner, name, unit, max(was // unit, 1), avoids)


class _Search(msgspec.Struct):
    trial: Trial
    dimensions: Sequence[RequestDimension]

    def fits(self, steps: Sequence[int]) -> bool:
        """Whether the node admits the pod with these requests."""
        return self.trial.admits(change_of_steps(self.dimensions, steps))

    def scaled(self) -> list[int] | None:
        """The requests at the largest factor that fits; None: not even the smallest does."""

        def at(factor: int) -> list[int]:
            return [max(dimension.most * factor // _SCALE, 1) for dimension in self.dimensions]

        if not self.dimensions or not self.fits(at(0)):
            return None
        return at(self._largest(at, 0, _SCALE))

    def raised(self, steps: list[int]) -> list[int]:
        """The requests with each as large as it can be: those of a resource all at once if that fits, else one by one."""
        for resource in dict.fromkeys(dimension.resource for dimension in self.dimensions):
            whole = [
                dimension.most if dimension.resource == resource else now
                for dimension, now in zip(self.dimensions, steps, strict=True)
            ]
            steps = whole if self.fits(whole) else steps
        before: list[int] = []
        while steps != before and not self.trial.is_budget_spent:
            before = steps
            for at in range(len(steps)):
                if not self.trial.is_budget_spent:
                    steps = self._raised_at(steps, at)
        return steps

    def _raised_at(self, steps: list[int], at: int) -> list[int]:
        """The requests with one of them so large that a further step does not fit."""

        def with_count(count: int) -> list[int]:
            return [*steps[:at], count, *steps[at + 1 :]]

        fitting, most = steps[at], self.dimensions[at].most
        if fitting == most or not self.fits(with_count(fitting + 1)):
            return steps
        return with_count(self._largest(with_count, fitting + 1, most + 1))

    def _largest(self, steps_at: Callable[[int], list[int]], fitting: int, too_large: int) -> int:
        """The largest number between the two whose requests fit; the first of them is known to."""
        while too_large - fitting > 1:
            middle = (fitting + too_large) // 2
            fitting, too_large = (middle, too_large) if self.fits(steps_at(middle)) else (fitting, middle)
        return fitting


def change_of_steps(dimensions: Sequence[RequestDimension], steps: Sequence[int]) -> RequestsChanged:
    """The change of the requests to these numbers of steps."""
    amounts = (
        dimension.owner.change(dimension.resource, dimension.amount(count))
        for dimension, count in zip(dimensions, steps, strict=True)
    )
    return RequestsChanged(amounts=tuple(amount for amount in amounts if amount.now != amount.was))
