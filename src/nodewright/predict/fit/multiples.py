"""The largest multiple of a pod's requests that a node admits: of each resource alone, and of all together."""

from collections.abc import Callable, Iterator, Sequence
from typing import TYPE_CHECKING

import msgspec
from msgspec import UNSET, UnsetType
from msgspec.structs import replace

from nodewright.documents.output.json_yaml import Report
from nodewright.engine.admission.admission_plugins import pod_as_stored
from nodewright.engine.core.predicates.scheduler_filters import unknown_resources
from nodewright.engine.core.requests.qos_and_priority import is_critical
from nodewright.engine.node.node_state import NodeState
from nodewright.engine.node.what_if.candidate_changes import RequestingPod, memory_limits, subset_sums
from nodewright.engine.node.what_if.changes import Amount, changed_pod
from nodewright.engine.node.what_if.counterfactuals import BUDGET, Trial
from nodewright.engine.node.what_if.largest_pod import RequestDimension, change_of_steps, request_dimensions
from nodewright.model.kubernetes.objects import Container, Pod
from nodewright.model.kubernetes.resource_names import readable_amount, resource_sort_key
from nodewright.predict.pod_claims import claims_on

if TYPE_CHECKING:
    from nodewright.engine.core.claims.claim_scheduling import ClaimCluster

MAX_SCANNED = 1024
"""Up to so many multiples, each is tried; of more, those at which a comparison of the kubelet can change."""


SMALLEST_BUDGET = 100
"""Decisions about the smallest multiples when the search for the largest was ended."""


class Multiple(Report, frozen=True, kw_only=True):
    """The largest multiple of requests that a node admits.

    The requests are `factor` / `parts` times those of the pod, rounded down to whole steps.
    """

    factor: int
    parts: int
    """The steps of the smallest of these requests; a multiple is a whole number of parts."""
    amounts: tuple[Amount, ...]
    is_proved: bool
    """Whether no larger multiple is admitted; False: the search was ended by its budget."""


class ResourceMultiple(Report, frozen=True, kw_only=True):
    """The multiples of one resource of a pod, its other requests unchanged; or of all together.

    Units: cpu in thousandths, memory and storage in bytes, everything else in units.
    """

    resource: str | UnsetType = UNSET
    """Absent: all requests together."""
    requested: int | UnsetType = UNSET
    """The sum over all containers."""
    now: Multiple | None
    """null: not even the smallest amount is admitted."""
    empty: Multiple | None


class NodeForPod(msgspec.Struct, kw_only=True, eq=False):
    """A node on which sizes of a pod are tried, each question once."""

    state: NodeState
    pod: Pod
    claims: "ClaimCluster | None" = None
    """What the scheduler allocates claims from; None: claims are not asked about."""
    _known: dict[str | None, Multiple | None] = {}

    @property
    def stored(self) -> Pod:
        """The pod as the API server stores it."""
        return pod_as_stored(self.pod, self.state.config.gates)

    def largest(self, resource: str | None = None) -> Multiple | None:
        """The largest multiple of one resource; None: of all requests together."""
        if resource not in self._known:
            self._known[resource] = self._largest(resource)
        return self._known[resource]

    def _largest(self, resource: str | None) -> Multiple | None:
        trial = Trial(self.state.without_pod(self.pod.uid), _without_higher_limits(self.pod), BUDGET)
        dimensions = tuple(request_dimensions(RequestingPod.of(trial.state, trial.pod)))
        scaled = tuple(each for each in dimensions if resource in (None, each.resource))
        search = _MultipleSearch(trial, scaled, self._binds)
        factor = search.largest_factor() if scaled else 0
        if not factor:
            return None
        amounts = (
            each.owner.change(each.resource, each.amount(steps))
            for each, steps in zip(scaled, search.steps(factor), strict=True)
        )
        # A resource that the node does not list is admitted by the kubelet in any amount.
        is_unlisted = any(each.resource not in self.state.config.view.allocatable for each in scaled)
        is_cut = trial.is_budget_spent or (is_unlisted and factor >= MAX_SCANNED)
        return Multiple(factor=factor, parts=search.parts, amounts=tuple(amounts), is_proved=not is_cut)

    def _binds(self, pod: Pod) -> bool:
        """Whether claims, of pods or of extended resources, keep the scheduler from binding the pod."""
        config = self.state.config
        if self.claims is None or not (pod.spec.resource_claims or unknown_resources(pod, config.view)):
            return True
        return claims_on(config, self.claims, pod, {}).obstacle is None


def _without_higher_limits(pod: Pod) -> Pod:
    """The pod without limits above its requests, which grow with the requests and do not count at admission."""

    def lowered(container: Container) -> Container:
        given = container.resources
        kept = [name for name, limit in given.limits.items() if given.requests.get(name, limit) == limit]
        limits = {name: given.limits[name] for name in kept}
        return replace(container, resources=replace(given, limits=limits))

    spec = pod.spec
    containers, init = tuple(map(lowered, spec.containers)), tuple(map(lowered, spec.init_containers))
    return replace(pod, spec=replace(spec, containers=containers, init_containers=init))


class _MultipleSearch(msgspec.Struct):
    trial: Trial
    dimensions: Sequence[RequestDimension]
    binds: Callable[[Pod], bool]

    @property
    def parts(self) -> int:
        """The number of parts that the requests are divided into."""
        return min(dimension.most for dimension in self.dimensions)

    def steps(self, factor: int) -> list[int]:
        """The steps of each request at the factor."""
        return [max(dimension.most * factor // self.parts, 1) for dimension in self.dimensions]

    def fits(self, factor: int) -> bool:
        """Whether the pod is admitted at the factor."""
        change = change_of_steps(self.dimensions, self.steps(factor))
        return self.trial.admits(change) and self.binds(changed_pod(self.trial.pod, change))

    def largest_factor(self) -> int:
        """The largest factor that fits; 0: none, or the budget was exhausted."""
        most = min(map(self._most, self.dimensions))
        candidates: Sequence[int] = range(most, 0, -1)
        if most > MAX_SCANNED:
            edges = {factor for edge in self._edges() for factor in range(edge - 2, edge + 3)}
            candidates = sorted({1, most, *(edge for edge in edges if 0 < edge <= most)}, reverse=True)
        refused = most + 1
        for factor in candidates:
            if self.fits(factor):
                return self._raised(factor, refused)
            refused = factor
            if self.trial.is_budget_spent:  # Then only the smallest multiples are tried.
                self.trial.budget += SMALLEST_BUDGET
                return self._raised(1, refused) if self.fits(1) else 0
        return 0

    def _raised(self, fitting: int, refused: int) -> int:
        """The largest factor between the two; the first of them fits."""
        while refused - fitting > 1 and self.fits(fitting + 1):
            middle = max((fitting + refused) // 2, fitting + 1)
            fitting, refused = (middle, refused) if self.fits(middle) else (fitting + 1, middle)
        return fitting

    def _most(self, dimension: RequestDimension) -> int:
        """The largest factor at which the request is not more than what is free, or what critical pods can have."""
        state = self.trial.state
        amount = state.config.view.allocatable.get(dimension.resource)
        if amount is None:  # The kubelet does not count it; devices of claims are as many as there are.
            return MAX_SCANNED
        if not is_critical(pod_as_stored(self.trial.pod, state.config.gates)):  # Only these preempt others.
            amount = max(amount - state.usage.requests.get(dimension.resource, 0), 0)
        return ((amount // dimension.unit + 1) * self.parts - 1) // dimension.most

    def _edges(self) -> Iterator[int]:
        """The factors at which a sum of requests reaches an amount that it is compared with."""
        for resource in {dimension.resource for dimension in self.dimensions}:
            scaled = [dimension for dimension in self.dimensions if dimension.resource == resource]
            sums = subset_sums([dimension.most * dimension.unit for dimension in scaled]) - {0}
            for limit in memory_limits(self.trial.state, resource):
                yield from (limit * self.parts // amount for amount in sums)


def resource_multiples(now: NodeForPod, empty: NodeForPod | None) -> tuple[ResourceMultiple, ...]:
    """For each resource that the pod requests the largest multiples, and those of all together."""
    requested: dict[str, int] = {}
    for dimension in request_dimensions(RequestingPod.of(now.state, now.pod)):
        amount = dimension.owner.amount(dimension.resource)
        requested[dimension.resource] = requested.get(dimension.resource, 0) + amount
    entries = sorted(requested.items(), key=lambda entry: resource_sort_key(entry[0]))
    multiples = [
        ResourceMultiple(
            resource=name,
            requested=amount,
            now=now.largest(name),
            empty=empty.largest(name) if empty else None,
        )
        for name, amount in entries
    ]
    return (*multiples, ResourceMultiple(now=now.largest(), empty=empty.largest() if empty else None))


def multiple_text(multiple: Multiple | None) -> str:
    """The sums of the amounts with their resources.

    >>> multiple_text(None)
    'none'
    """
    if multiple is None:
        return "none"
    sums: dict[str, int] = {}
    for each in multiple.amounts:
        sums[each.resource] = sums.get(each.resource, 0) + each.now
    return ", ".join(f"{readable_amount(name, amount)} {name}" for name, amount in sums.items())
