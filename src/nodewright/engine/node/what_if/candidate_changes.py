"""The kinds of change of a node or of a pod that could let the pod in, each with its smallest change first.

For the memory manager, only sizes at which its decision can change are tried.
"""

from collections.abc import Iterable, Iterator, Mapping, Sequence
from fractions import Fraction
from functools import partial
from itertools import combinations, product

import msgspec

from nodewright.engine.admission.admission_plugins import pod_as_stored
from nodewright.engine.core.cpu.cpu_policy import StaticCPUPolicy
from nodewright.engine.core.memory.memory_policy import KIB, huge_pages_name
from nodewright.engine.core.memory.memory_state import NUMANodeMap, free_memory
from nodewright.engine.core.requests.effective_resources import scheduler_requests
from nodewright.engine.core.requests.qos_and_priority import QOSClass, qos_class
from nodewright.engine.core.requests.resource_defaults import with_defaults
from nodewright.engine.core.topology.manager_config import (
    BEST_EFFORT,
    CONTAINER_SCOPE,
    NONE_POLICY,
    POD_SCOPE,
    PREFER_CLOSEST,
    RESTRICTED,
    SINGLE_NUMA_NODE,
)
from nodewright.engine.node.node_state import NodeState
from nodewright.engine.node.what_if.changes import (
    Amount,
    AmountRewritten,
    AmountsRewritten,
    Change,
    ConditionsPass,
    CPULimitDropped,
    HugePagesReserved,
    Label,
    LabelsChanged,
    PodLeaves,
    RequestsChanged,
    Setting,
    SettingName,
    SettingsChanged,
    TaintsRemoved,
    TaintsTolerated,
    amount_of,
)
from nodewright.engine.node.what_if.counterfactuals import (
    SmallestChange,
    Trial,
    first_admitting,
    largest_admitting,
)
from nodewright.model.kubernetes.kubelet_configuration import KubeletConfiguration
from nodewright.model.kubernetes.objects import Pod, ResourceList
from nodewright.model.kubernetes.resource_names import (
    CPU,
    HUGE_PAGES_PREFIX,
    MEMORY,
    PODS,
    counted_amount,
    is_huge_page,
    is_in_bytes,
    resource_sort_key,
)
from nodewright.model.reasons.eviction import NodeUnderPressure
from nodewright.model.reasons.memory import MemoryRequestInexact
from nodewright.model.reasons.predicates import (
    InsufficientResource,
    NodeAffinityMismatch,
    RequirementUnmet,
    TermUnmet,
    UntoleratedTaints,
)
from nodewright.model.reasons.reason import Reason, SysctlForbidden
from nodewright.model.values.idset import NUMASet
from nodewright.model.values.quantity import Quantity
from nodewright.model.values.subsets import nonempty_subsets

POLICIES_BY_STRICTNESS = (NONE_POLICY, BEST_EFFORT, RESTRICTED, SINGLE_NUMA_NODE)
ALL_SETS_UP_TO = 8
"""With more NUMA nodes, only single nodes, groups and the whole machine are considered."""
ALL_SUMS_UP_TO = 5
"""With more other containers, only each alone and all together are considered."""


def pod_removals(state: NodeState, pod: Pod) -> Iterator[tuple[str, SmallestChange]]:
    """The removal of one pod, the smallest first: by the sum of its shares of the allocatable resources."""
    removals = _removals(state, pod)
    if removals:
        yield "a pod that leaves", first_admitting(removals)


def _removals(state: NodeState, pod: Pod) -> list[PodLeaves]:
    allocatable = state.config.view.allocatable
    pods = [
        (_size(requests, allocatable), other.full_name, other.uid, PodLeaves(pod=other, requests=requests))
        for other in state.pods.values()
        if other.uid != pod.uid
        for requests in (scheduler_requests(other),)
    ]
    return [removal[-1] for removal in sorted(pods, key=lambda removal: removal[:3])]


def manager_changes(state: NodeState) -> Iterator[tuple[str, SmallestChange]]:
    """Changes of the resource managers' settings, one at a time."""
    kubelet = state.config.parts.kubelet
    if kubelet.topology_manager_policy != NONE_POLICY:
        yield from _topology_kinds(kubelet)
    cpu = state.config.managers.static_cpu_policy
    if cpu is not None:
        for option, on in cpu.options.by_name().items():
            current = kubelet.cpu_manager_policy_options.get(option)
            yield _option_kind("cpuManagerPolicyOptions", option, current, on=on)
    yield from ((kind, first_admitting([change])) for kind, change in _static_policies_off(state))


def _static_policies_off(state: NodeState) -> Iterator[tuple[str, SettingsChanged]]:
    """The CPU and the memory manager without exclusive allocations, one at a time."""
    kubelet = state.config.parts.kubelet
    if state.config.managers.static_cpu_policy is not None:
        yield "cpuManagerPolicy", _no_exclusive_cpus(kubelet)
    if kubelet.memory_manager_policy == "Static":
        setting = _setting("memoryManagerPolicy", kubelet.memory_manager_policy, "None")
        yield "memoryManagerPolicy", SettingsChanged(settings=(setting,))


def _no_exclusive_cpus(kubelet: KubeletConfiguration) -> SettingsChanged:
    dropped = tuple(
        _setting("cpuManagerPolicyOptions", value, None, option=option)
        for option, value in sorted(kubelet.cpu_manager_policy_options.items())
    )
    none = _setting("cpuManagerPolicy", kubelet.cpu_manager_policy, "none")
    return SettingsChanged(settings=(none, *dropped))


def first_changes(
    state: NodeState, pod: Pod, short: Sequence[InsufficientResource]
) -> Iterator[tuple[str, Change]]:
    """Changes that can be the first of a pair: each removes one obstacle, whether or not others remain."""
    requester = RequestingPod.of(state, pod)
    for reason in short:
        owners = [owner for owner in requester.owners if reason.resource in owner.requests]
        for owner in sorted(owners, key=lambda owner: -owner.amount(reason.resource))[:1]:
            unit = 1000 if reason.resource == CPU and owner.cpus else step_of(reason.resource)
            now = (owner.amount(reason.resource) - reason.missing) // unit * unit
            if now > 0:
                yield request_kind(reason.resource), _one_amount(owner, reason.resource, now)
    for kind, changes in _page_changes(state, pod):
        yield from ((kind, added) for added in changes)
    if requester.holds_exclusively:
        for change in _without_limit(requester):
            yield "not Guaranteed", change
    kubelet = state.config.parts.kubelet
    if kubelet.topology_manager_policy != NONE_POLICY:
        yield (
            "topologyManagerPolicy",
            SettingsChanged(
                settings=(_setting("topologyManagerPolicy", kubelet.topology_manager_policy, NONE_POLICY),)
            ),
        )
    yield from _static_policies_off(state)
    names = {reason.resource for reason in short}
    removals = _removals(state, pod)
    needed = [leaving for leaving in removals if not names or not names.isdisjoint(leaving.requests)]
    for leaving in needed[-_MAX_FIRST_REMOVALS:]:
        yield "a pod that leaves", leaving


_MAX_FIRST_REMOVALS = 8
"""Of a pair, the largest pods are tried as the first."""


def other_node_changes(state: NodeState, because: Sequence[Reason]) -> Iterator[tuple[str, SmallestChange]]:
    """The node changes that follow from the reasons."""
    for reason in because:
        if isinstance(reason, NodeAffinityMismatch):
            yield "labels of the node", first_admitting(_labels(reason))
        if isinstance(reason, UntoleratedTaints):
            yield "taints of the node", first_admitting([TaintsRemoved(taints=reason.taints)])
        if isinstance(reason, NodeUnderPressure):
            period = state.config.eviction.pressure_transition_period
            passed = ConditionsPass(conditions=reason.conditions, transition_period=period)
            yield "the node's conditions", first_admitting([passed])
        if isinstance(reason, InsufficientResource) and reason.resource == PODS:
            was = state.config.parts.kubelet.max_pods
            yield "maxPods", _changed_setting("maxPods", str(was), str(was + reason.missing))
        if isinstance(reason, SysctlForbidden) and not reason.host_namespace:
            yield "allowedUnsafeSysctls", _changed_setting("allowedUnsafeSysctls", None, reason.sysctl)


def huge_page_changes(state: NodeState, pod: Pod) -> Iterator[tuple[str, SmallestChange]]:
    """More huge pages on one NUMA node, for each size that the pod requests; the fewest added pages first."""
    for kind, changes in _page_changes(state, pod):
        yield kind, first_admitting(changes)


def _page_changes(state: NodeState, pod: Pod) -> Iterator[tuple[str, list[HugePagesReserved]]]:
    requests = scheduler_requests(pod_as_stored(pod, state.config.gates))
    for pages in state.config.parts.machine.hugepages:
        resource, page_bytes = huge_pages_name(pages), pages.page_size * KIB
        requested = requests.get(resource, 0)
        if requested and page_bytes:
            changes = sorted(
                _added_pages(state, pages.page_size, resource, requested),
                key=lambda change: (change.now - change.was, change.numa_node),
            )
            yield f"more {resource}", changes


def memory_breakpoints(state: NodeState, resource: str, other_amounts: list[int], unit: int) -> list[int]:
    """The sizes at which a comparison of the memory manager changes, as multiples of the unit; largest first.

    A request is compared with the free and the allocatable memory of sets of NUMA nodes, and with the node's
    remaining allocatable; the requests of the pod's other containers may be added or subtracted.

    Units: bytes.
    """
    sizes = set()
    for limit in memory_limits(state, resource):
        for other_sum in subset_sums(other_amounts):
            for edge in (limit - other_sum, other_sum - limit, other_sum, limit):
                # The largest size up to the edge, and the largest below it.
                sizes |= {edge // unit * unit, (edge - 1) // unit * unit}
    return sorted((size for size in sizes if size > 0), reverse=True)


def memory_limits(state: NodeState, resource: str, node_sets: Iterable[int] | None = None) -> set[int]:
    """The amounts that requests of a resource are compared with: what sets of NUMA nodes have, and the rest of the node.

    ``node_sets``: only these sets of NUMA nodes, as masks.

    Units: cpu in thousandths, memory and storage in bytes, everything else in units.
    """
    machine = state.without_stale().held.memory.machine
    limits = {state.config.view.allocatable.get(resource, 0) - state.usage.requests.get(resource, 0)}
    for nodes in _node_sets(machine) if node_sets is None else node_sets:
        tables = [
            machine[n].tables[resource]
            for n in NUMASet(nodes)
            if n in machine and resource in machine[n].tables
        ]
        limits |= {sum(table.free for table in tables), sum(table.allocatable for table in tables)}
    return limits


MIB = 1 << 20
FRACTIONAL_CORE_CONTAINERS = 6
"""With more containers, either all counts are rounded up or all are rounded down."""


def request_changes(state: NodeState, pod: Pod) -> Iterator[tuple[str, SmallestChange]]:
    """The changes of the pod's requests."""
    requester = RequestingPod.of(state, pod)
    if requester.fractional_owners:
        yield "whole cores", first_admitting(_whole_cores(requester))
    for name in sorted(
        {name for owner in requester.owners for name in owner.requests}, key=resource_sort_key
    ):
        yield (
            request_kind(name),
            _smallest_of(
                _smaller_request(requester, owner, name)
                for owner in requester.owners
                if name in owner.requests
            ),
        )
    if any(owner.cpus for owner in requester.owners):
        yield "more CPUs", first_admitting(_more_cpus(requester))
    if requester.holds_exclusively:
        yield "not Guaranteed", first_admitting(_without_limit(requester))


def request_kind(resource: str) -> str:
    """The kind of a smaller request."""
    return "fewer CPUs" if resource == CPU else f"{'less' if is_in_bytes(resource) else 'fewer'} {resource}"


def other_pod_changes(pod: Pod, because: Sequence[Reason]) -> Iterator[tuple[str, SmallestChange]]:
    """The pod changes that follow from the reasons."""
    for reason in because:
        if isinstance(reason, MemoryRequestInexact):
            yield "the same in whole bytes", first_admitting([_rewritten(with_defaults(pod))])
        if isinstance(reason, UntoleratedTaints):
            yield "a toleration", first_admitting([TaintsTolerated(taints=reason.taints)])
        if isinstance(reason, NodeUnderPressure):
            yield from _under_pressure(pod, reason)


class RequestOwner(msgspec.Struct, frozen=True):
    """A container or the pod level, with its requests."""

    container: str
    """Empty: the pod level."""
    requests: ResourceList
    has_cpu_limit: bool
    cpus: int
    """Number of exclusive CPUs."""

    def amount(self, resource: str) -> int:
        """The requested amount, in the unit of `Amount`."""
        return counted_amount(resource, self.requests[resource])

    def change(self, resource: str, now: int) -> Amount:
        """The change of its request to this amount."""
        return Amount(container=self.container, resource=resource, was=self.amount(resource), now=now)


class RequestingPod(msgspec.Struct, frozen=True):
    """A pod with defaults, prepared for trying request changes on a node."""

    state: NodeState
    pod: Pod
    """The pod with the API server's defaults."""
    owners: tuple[RequestOwner, ...]
    """Containers in the managers' order, then the pod level if it has resources."""
    cpu_policy: StaticCPUPolicy | None
    memory_is_placed: bool
    """Whether the memory manager allocates the pod's memory."""
    pins_whole_cpus: bool
    """Whether integer CPU requests get exclusive CPUs."""

    @classmethod
    def of(cls, state: NodeState, pod: Pod) -> "RequestingPod":
        """The pod's requests after the API server's defaults."""
        pod = with_defaults(pod)
        static = state.config.managers.static_cpu_policy
        memory = state.config.managers.static_memory_policy
        demand = static.cpu_requests(pod) if static else None
        pins = demand is not None and demand.is_guaranteed and not demand.is_ignored
        blocks = memory.demand(pod) if memory else None
        owners = [
            RequestOwner(
                container.name,
                container.resources.requests,
                CPU in container.resources.limits,
                demand.container_cpus(container) if demand and pins else 0,
            )
            for container in (*pod.spec.init_containers, *pod.spec.containers)
        ]
        if pod.spec.resources is not None:
            level = pod.spec.resources
            pod_cpus = demand.pod_cpus() if demand and pins and demand.is_pod_managed else 0
            owners.append(RequestOwner("", level.requests, CPU in level.limits, pod_cpus))
        memory_is_placed = blocks is not None and blocks.is_guaranteed and not blocks.is_ignored
        return cls(state, pod, tuple(owners), static, memory_is_placed, pins)

    @property
    def fractional_owners(self) -> tuple[RequestOwner, ...]:
        """The owners that request part of a core under full-pcpus-only."""
        if self.cpu_policy is None or not self.cpu_policy.options.full_pcpus_only:
            return ()
        per_core = self.cpu_policy.topology.cpus_per_core
        return tuple(owner for owner in self.owners if per_core and owner.cpus % per_core)

    @property
    def holds_exclusively(self) -> bool:
        """Whether the pod is Guaranteed and gets exclusive resources."""
        exclusive = self.memory_is_placed or any(owner.cpus for owner in self.owners)
        return exclusive and qos_class(self.pod) is QOSClass.GUARANTEED


def _added_pages(
    state: NodeState, page_size_kib: int, resource: str, requested: int
) -> Iterator[HugePagesReserved]:
    """For each NUMA node the pages that the node as a whole lacks, and those that this NUMA node lacks.

    Units: requested in bytes.
    """
    page_bytes = page_size_kib * KIB
    unused = state.config.view.allocatable.get(resource, 0) - state.usage.requests.get(resource, 0)
    left = {site.numa: site.free for site in free_memory(state.held.memory.machine, {resource: 0})}
    for node in state.config.parts.machine.topology:
        was = sum(pages.num_pages for pages in node.hugepages if pages.page_size == page_size_kib)
        room = (
            node.memory - sum(pages.num_pages * pages.page_size * KIB for pages in node.hugepages)
        ) // page_bytes
        missing = {requested - unused, requested - left.get(node.node_id, 0)}
        for added in {-(-amount // page_bytes) for amount in missing if amount > 0}:
            if added <= room:
                yield HugePagesReserved(
                    numa_node=node.node_id, page_size_kib=page_size_kib, was=was, now=was + added
                )


def _size(requests: Mapping[str, int], allocatable: Mapping[str, int]) -> Fraction:
    return sum(
        (Fraction(amount, allocatable[name]) for name, amount in requests.items() if allocatable.get(name)),
        Fraction(),
    )


def _topology_kinds(kubelet: KubeletConfiguration) -> Iterator[tuple[str, SmallestChange]]:
    scope, policy = kubelet.topology_manager_scope, kubelet.topology_manager_policy
    other_scope = CONTAINER_SCOPE if scope == POD_SCOPE else POD_SCOPE
    yield "topologyManagerScope", _changed_setting("topologyManagerScope", scope, other_scope)
    at = POLICIES_BY_STRICTNESS.index(policy)
    nearest = sorted(
        enumerate(POLICIES_BY_STRICTNESS), key=lambda setting: (abs(setting[0] - at), setting[0])
    )
    policies = [_setting("topologyManagerPolicy", policy, name) for _, name in nearest if name != policy]
    yield (
        "topologyManagerPolicy",
        first_admitting(SettingsChanged(settings=(setting,)) for setting in policies),
    )
    current = kubelet.topology_manager_policy_options.get(PREFER_CLOSEST)
    on = current is not None and current.lower() in {"1", "t", "true"}
    yield _option_kind("topologyManagerPolicyOptions", PREFER_CLOSEST, current, on=on)


def _option_kind(
    name: SettingName, option: str, current: str | None, *, on: bool
) -> tuple[str, SmallestChange]:
    return option, _changed_setting(name, current, None if on else "true", option=option)


def _changed_setting(
    name: SettingName, was: str | None, now: str | None, *, option: str = ""
) -> SmallestChange:
    change = SettingsChanged(settings=(_setting(name, was, now, option=option),))
    return first_admitting([change])


def _setting(name: SettingName, was: str | None, now: str | None, *, option: str = "") -> Setting:
    return Setting(name=name, option=option, was=was, now=now)


def _labels(reason: NodeAffinityMismatch) -> list[Change]:
    """The label changes that satisfy the selector and one of the terms, fewest first."""
    selector = {
        requirement.key: Label(key=requirement.key, was=requirement.actual, now=requirement.wanted)
        for requirement in reason.selector
    }
    alternatives = []
    for term in reason.terms or (None,):
        needed = _term_labels(term) if term else {}
        if needed is not None:
            alternatives.append(tuple({**selector, **needed}.values()))
    return [LabelsChanged(labels=labels) for labels in sorted(alternatives, key=len) if labels]


def _term_labels(term: TermUnmet) -> dict[str, Label] | None:
    """The label changes that satisfy the term; None: no label change does."""
    needed = {}
    for requirement in term.unmet:
        label = _label(requirement)
        if label is None:
            return None
        needed[requirement.key] = label
    return needed or None


def _label(requirement: RequirementUnmet) -> Label | None:
    if requirement.on_field or requirement.invalid:
        return None
    now: str | None = ""
    match requirement.operator:
        case "In":
            now = requirement.values[0]
        case "Exists":
            now = ""
        case "NotIn" | "DoesNotExist":
            now = None
        case "Gt":
            now = str(int(requirement.values[0]) + 1)
        case "Lt":
            now = str(int(requirement.values[0]) - 1)
        case _:
            return None
    return Label(key=requirement.key, was=requirement.actual, now=now)


def _node_sets(machine: NUMANodeMap) -> set[int]:
    everything = NUMASet.from_ids(machine).mask
    if len(machine) <= ALL_SETS_UP_TO:
        return set(nonempty_subsets(everything))
    return {everything, *(1 << n for n in machine), *(node.cells.mask for node in machine.values())}


def subset_sums(other_amounts: list[int]) -> set[int]:
    """The sums over subsets of containers' requests."""
    if len(other_amounts) > ALL_SUMS_UP_TO:
        return {0, sum(other_amounts), *other_amounts}
    return {
        sum(selection)
        for count in range(len(other_amounts) + 1)
        for selection in combinations(other_amounts, count)
    }


def _under_pressure(pod: Pod, reason: NodeUnderPressure) -> Iterator[tuple[str, SmallestChange]]:
    """If only best-effort pods are rejected: a toleration, or the smallest CPU request."""
    if not reason.best_effort_only:
        return
    taints = tuple(condition.taint for condition in reason.conditions)
    yield "a toleration", first_admitting([TaintsTolerated(taints=taints)])
    for container in pod.spec.containers[:1]:
        least = Amount(container=container.name, resource=CPU, was=0, now=1)
        yield "a request", first_admitting([RequestsChanged(amounts=(least,))])


def _whole_cores(requester: RequestingPod) -> list[Change]:
    """All fractional counts rounded to whole cores, by the smallest total change, preferring up."""
    assert requester.cpu_policy is not None
    per_core = requester.cpu_policy.topology.cpus_per_core
    down = [owner.cpus // per_core * per_core for owner in requester.fractional_owners]
    up = [count + per_core for count in down]
    counts = (
        product(*zip(down, up, strict=True))
        if len(down) <= FRACTIONAL_CORE_CONTAINERS
        else [tuple(down), tuple(up)]
    )
    choices = [
        tuple(
            owner.change(CPU, count * 1000)
            for owner, count in zip(requester.fractional_owners, chosen, strict=True)
        )
        for chosen in counts
        if all(chosen)
    ]
    ordered = sorted(choices, key=lambda amounts: (_extent(amounts), -sum(amount.now for amount in amounts)))
    return [RequestsChanged(amounts=amounts) for amounts in ordered]


def _smaller_request(requester: RequestingPod, owner: RequestOwner, resource: str) -> SmallestChange:
    """A smaller request of one container, in usual units."""
    was, change_to = owner.amount(resource), partial(_one_amount, owner, resource)
    if resource == CPU and owner.cpus:
        assert requester.cpu_policy is not None
        most = min(owner.cpus - 1, requester.cpu_policy.topology.num_cpus)
        return first_admitting(change_to(count * 1000) for count in range(most, 0, -1))
    if resource == CPU:
        # An integer request would get exclusive CPUs, which is another kind of change.
        return largest_admitting(
            lambda now: change_to(now - (requester.pins_whole_cpus and now % 1000 == 0)), was
        )
    if requester.memory_is_placed and (resource == MEMORY or is_huge_page(resource)):
        unit = step_of(resource)
        other_amounts = [
            other.amount(resource)
            for other in requester.owners
            if other is not owner and resource in other.requests
        ]
        return first_admitting(
            change_to(size)
            for size in memory_breakpoints(requester.state, resource, other_amounts, unit)
            if size < was
        )
    if requester.state.held.devices.is_device_plugin_resource(resource):
        listed = requester.state.held.devices.device_lists.get(resource)
        most = min(was - 1, len(listed.devices) if listed else 0)
        return first_admitting(change_to(count) for count in range(most, 0, -1))
    unit = step_of(resource)
    return largest_admitting(lambda units: change_to(units * unit), -(-was // unit))


def step_of(resource: str) -> int:
    """The step: a page for huge pages, a mebibyte for memory and storage, otherwise 1."""
    if is_huge_page(resource):
        return Quantity.parse(resource.removeprefix(HUGE_PAGES_PREFIX)).value()
    return MIB if is_in_bytes(resource) else 1


def _more_cpus(requester: RequestingPod) -> Iterator[Change]:
    """More exclusive CPUs for one container; a larger request may be preferred on more NUMA nodes."""
    assert requester.cpu_policy is not None
    for increase in range(1, requester.cpu_policy.topology.num_cpus):
        for owner in requester.owners:
            if owner.cpus and owner.cpus + increase <= requester.cpu_policy.topology.num_cpus:
                yield _one_amount(owner, CPU, (owner.cpus + increase) * 1000)


def _without_limit(requester: RequestingPod) -> Iterator[Change]:
    """The removal of a CPU limit, so that the pod is no longer Guaranteed."""
    level = [owner for owner in requester.owners if not owner.container]
    for owner in level or requester.owners:
        if owner.has_cpu_limit:
            yield CPULimitDropped(container=owner.container)


def _rewritten(pod: Pod) -> Change:
    containers = (*pod.spec.init_containers, *pod.spec.containers)
    owned_requests = [(container.name, container.resources.requests) for container in containers]
    if pod.spec.resources is not None:
        owned_requests.append(("", pod.spec.resources.requests))
    amounts = (
        AmountRewritten(container=container, resource=name, now=str(amount_of(name, amount.value())))
        for container, requests in owned_requests
        for name, amount in sorted(requests.items())
        if (name == MEMORY or is_huge_page(name)) and amount.as_int64() is None
    )
    return AmountsRewritten(amounts=tuple(amounts))


def _one_amount(owner: RequestOwner, resource: str, now: int) -> Change:
    return RequestsChanged(amounts=(owner.change(resource, now),))


def _smallest_of(smallest: Iterable[SmallestChange]) -> SmallestChange:
    """The smallest change that any of the searches finds; the first of equal ones. Searches are made as the budget allows."""

    def least(trial: Trial) -> Change | None:
        changes = []
        for search in smallest:
            change = search(trial)
            if trial.is_budget_spent:
                return None
            if change is not None:
                assert isinstance(change, RequestsChanged)
                changes.append(change)
        return min(changes, key=lambda change: _extent(change.amounts), default=None)

    return least


def _extent(amounts: Sequence[Amount]) -> int:
    return sum(abs(amount.now - amount.was) for amount in amounts)
