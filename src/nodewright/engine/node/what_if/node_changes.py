"""The kinds of node change that could let a pod in, each with its smallest change first."""

from collections.abc import Iterator, Mapping, Sequence
from fractions import Fraction

from nodewright.engine.admission.admission_plugins import pod_as_stored
from nodewright.engine.core.cpu.cpu_policy import StaticCPUPolicy
from nodewright.engine.core.cpu.policy_options import POLICY_OPTIONS
from nodewright.engine.core.memory.memory_policy import KIB, huge_pages_name
from nodewright.engine.core.memory.memory_state import free_memory
from nodewright.engine.core.requests.integer_requests import scheduler_requests
from nodewright.engine.core.topology.manager_config import (
    BEST_EFFORT,
    CONTAINER_SCOPE,
    NONE_POLICY,
    POD_SCOPE,
    PREFER_CLOSEST,
    RESTRICTED,
    SINGLE_NUMA_NODE,
)
from nodewright.engine.node.managers.hint_providers import CPUProvider
from nodewright.engine.node.node_state import NodeState
from nodewright.engine.node.what_if.changes import (
    Change,
    ConditionsPass,
    HugePagesReserved,
    Label,
    LabelsChanged,
    PodLeaves,
    Setting,
    SettingName,
    SettingsChanged,
    TaintsRemoved,
)
from nodewright.engine.node.what_if.counterfactuals import SmallestChange, first_admitting
from nodewright.model.kubernetes.kubelet_configuration import KubeletConfiguration
from nodewright.model.kubernetes.objects import Pod
from nodewright.model.kubernetes.resource_names import PODS
from nodewright.model.reasons.eviction import NodeUnderPressure
from nodewright.model.reasons.predicates import (
    InsufficientResource,
    NodeAffinityMismatch,
    RequirementUnmet,
    TermUnmet,
    UntoleratedTaints,
)
from nodewright.model.reasons.reason import Reason, SysctlForbidden

POLICIES_BY_STRICTNESS = (NONE_POLICY, BEST_EFFORT, RESTRICTED, SINGLE_NUMA_NODE)
MANAGER_KINDS = {
    "topologyManagerScope",
    "topologyManagerPolicy",
    PREFER_CLOSEST,
    *POLICY_OPTIONS,
    "cpuManagerPolicy",
    "memoryManagerPolicy",
}
"""The kinds of change of `manager_changes`."""


def pod_removals(state: NodeState, pod: Pod) -> Iterator[tuple[str, SmallestChange]]:
    """The removal of one pod, the smallest first: by the sum of its shares of the allocatable resources."""
    allocatable = state.config.view.allocatable
    pods = [
        (_size(requests, allocatable), other.full_name, other.uid, PodLeaves(pod=other, requests=requests))
        for other in state.pods.values()
        if other.uid != pod.uid
        for requests in (scheduler_requests(other),)
    ]
    if pods:
        yield (
            "a pod that leaves",
            first_admitting(removal[-1] for removal in sorted(pods, key=lambda removal: removal[:3])),
        )


def manager_changes(state: NodeState) -> Iterator[tuple[str, SmallestChange]]:
    """Changes of the resource managers' settings, one at a time."""
    kubelet = state.config.parts.kubelet
    if kubelet.topology_manager_policy != NONE_POLICY:
        yield from _topology_kinds(kubelet)
    cpu = next(
        (
            provider.policy
            for provider in state.config.managers.providers
            if isinstance(provider, CPUProvider)
        ),
        None,
    )
    if isinstance(cpu, StaticCPUPolicy):
        for option, on in cpu.options.by_name().items():
            current = kubelet.cpu_manager_policy_options.get(option)
            yield _option_kind("cpuManagerPolicyOptions", option, current, on=on)
        dropped = tuple(
            _setting("cpuManagerPolicyOptions", value, None, option=option)
            for option, value in sorted(kubelet.cpu_manager_policy_options.items())
        )
        none = _setting("cpuManagerPolicy", kubelet.cpu_manager_policy, "none")
        yield "cpuManagerPolicy", first_admitting([SettingsChanged(settings=(none, *dropped))])
    if kubelet.memory_manager_policy == "Static":
        none = _setting("memoryManagerPolicy", kubelet.memory_manager_policy, "None")
        yield "memoryManagerPolicy", first_admitting([SettingsChanged(settings=(none,))])


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
            raised = _setting("maxPods", str(was), str(was + reason.missing))
            yield "maxPods", first_admitting([SettingsChanged(settings=(raised,))])
        if isinstance(reason, SysctlForbidden) and not reason.host_namespace:
            allowed = _setting("allowedUnsafeSysctls", None, reason.sysctl)
            yield "allowedUnsafeSysctls", first_admitting([SettingsChanged(settings=(allowed,))])


def huge_page_changes(state: NodeState, pod: Pod) -> Iterator[tuple[str, SmallestChange]]:
    """More huge pages on one NUMA node, for each size that the pod requests; the fewest added pages first."""
    requests = scheduler_requests(pod_as_stored(pod, state.config.gates))
    for pages in state.config.parts.machine.hugepages:
        resource, page_bytes = huge_pages_name(pages), pages.page_size * KIB
        requested = requests.get(resource, 0)
        if requested and page_bytes:
            changes = sorted(
                _added_pages(state, pages.page_size, resource, requested),
                key=lambda change: (change.now - change.was, change.numa_node),
            )
            yield f"more {resource}", first_admitting(changes)


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
    other_scope = _setting(
        "topologyManagerScope", scope, CONTAINER_SCOPE if scope == POD_SCOPE else POD_SCOPE
    )
    yield "topologyManagerScope", first_admitting([SettingsChanged(settings=(other_scope,))])
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
    now = None if on else "true"
    change = SettingsChanged(settings=(_setting(name, current, now, option=option),))
    return option, first_admitting([change])


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
