"""The kinds of change of a node that could let a pod in, each smallest first."""

from collections.abc import Iterator, Mapping, Sequence
from fractions import Fraction

from nodewright.core.cpu.options import (
    ALIGN_BY_SOCKET,
    DISTRIBUTE_ACROSS_CORES,
    DISTRIBUTE_ACROSS_NUMA,
    FULL_PCPUS_ONLY,
    PREFER_UNCORE_CACHE,
    STRICT_RESERVATION,
)
from nodewright.core.cpu.policy import StaticPolicy
from nodewright.core.requests import scheduler_requests
from nodewright.core.topology.policy import (
    BEST_EFFORT,
    CONTAINER,
    NONE,
    POD,
    PREFER_CLOSEST,
    RESTRICTED,
    SINGLE_NUMA_NODE,
)
from nodewright.model.eviction_reasons import NodeUnderPressure
from nodewright.model.kubelet_config import KubeletConfiguration
from nodewright.model.objects import Pod
from nodewright.model.reasons import (
    InsufficientResource,
    NodeAffinityMismatch,
    Reason,
    RequirementUnmet,
    SysctlForbidden,
    TermUnmet,
    UntoleratedTaints,
)
from nodewright.model.resource_names import PODS
from nodewright.node.changes import (
    Change,
    ConditionsPass,
    Label,
    LabelsChanged,
    PodLeaves,
    Setting,
    SettingName,
    SettingsChanged,
    TaintsRemoved,
)
from nodewright.node.counterfactual import Smallest, first_of
from nodewright.node.providers import CPUs
from nodewright.node.state import NodeState

LOOSE_TO_STRICT = (NONE, BEST_EFFORT, RESTRICTED, SINGLE_NUMA_NODE)
CPU_OPTIONS = {
    FULL_PCPUS_ONLY: "full_pcpus_only",
    DISTRIBUTE_ACROSS_NUMA: "distribute_across_numa",
    ALIGN_BY_SOCKET: "align_by_socket",
    DISTRIBUTE_ACROSS_CORES: "distribute_across_cores",
    STRICT_RESERVATION: "strict_reservation",
    PREFER_UNCORE_CACHE: "prefer_uncore_cache",
}
"""By option, the field that says whether it is on."""
MANAGER_KINDS = {
    "topologyManagerScope",
    "topologyManagerPolicy",
    PREFER_CLOSEST,
    *CPU_OPTIONS,
    "cpuManagerPolicy",
    "memoryManagerPolicy",
}
"""The kinds of change of `manager_kinds`."""


def leaving_pods(state: NodeState, pod: Pod) -> Iterator[tuple[str, Smallest]]:
    """One pod that leaves, the smallest first: by the sum of its shares of what the node has for pods."""
    has = state.config.view.allocatable
    pods = [
        (_size(requests, has), other.full_name, other.uid, PodLeaves(pod=other, requests=requests))
        for other in state.pods.values()
        if other.uid != pod.uid
        for requests in (scheduler_requests(other),)
    ]
    if pods:
        yield "a pod that leaves", first_of(one[-1] for one in sorted(pods, key=lambda one: one[:3]))


def manager_kinds(state: NodeState) -> Iterator[tuple[str, Smallest]]:
    """Other settings of the resource managers, one at a time."""
    kubelet = state.config.parts.kubelet
    if kubelet.topology_manager_policy != NONE:
        yield from _topology_kinds(kubelet)
    cpu = next((one.policy for one in state.config.managers.providers if isinstance(one, CPUs)), None)
    if isinstance(cpu, StaticPolicy):
        for option, field in CPU_OPTIONS.items():
            on = getattr(cpu.options, field)
            given = kubelet.cpu_manager_policy_options.get(option)
            yield _option_kind("cpuManagerPolicyOptions", option, given, on=on)
        dropped = tuple(
            _setting("cpuManagerPolicyOptions", value, None, option=option)
            for option, value in sorted(kubelet.cpu_manager_policy_options.items())
        )
        none = _setting("cpuManagerPolicy", kubelet.cpu_manager_policy, "none")
        yield "cpuManagerPolicy", first_of([SettingsChanged(settings=(none, *dropped))])
    if kubelet.memory_manager_policy == "Static":
        none = _setting("memoryManagerPolicy", kubelet.memory_manager_policy, "None")
        yield "memoryManagerPolicy", first_of([SettingsChanged(settings=(none,))])


def other_node_kinds(state: NodeState, because: Sequence[Reason]) -> Iterator[tuple[str, Smallest]]:
    """The changes of a node that the reasons themselves suggest."""
    for reason in because:
        if isinstance(reason, NodeAffinityMismatch):
            yield "labels of the node", first_of(_labels(reason))
        if isinstance(reason, UntoleratedTaints):
            yield "taints of the node", first_of([TaintsRemoved(taints=reason.taints)])
        if isinstance(reason, NodeUnderPressure):
            period = state.config.eviction.transition_period
            passed = ConditionsPass(conditions=reason.conditions, transition_period=period)
            yield "the node's conditions", first_of([passed])
        if isinstance(reason, InsufficientResource) and reason.resource == PODS:
            was = state.config.parts.kubelet.max_pods
            more = _setting("maxPods", str(was), str(was + reason.missing))
            yield "maxPods", first_of([SettingsChanged(settings=(more,))])
        if isinstance(reason, SysctlForbidden) and not reason.host_namespace:
            allowed = _setting("allowedUnsafeSysctls", None, reason.sysctl)
            yield "allowedUnsafeSysctls", first_of([SettingsChanged(settings=(allowed,))])


def _size(requests: Mapping[str, int], has: Mapping[str, int]) -> Fraction:
    return sum(
        (Fraction(amount, has[name]) for name, amount in requests.items() if has.get(name)), Fraction()
    )


def _topology_kinds(kubelet: KubeletConfiguration) -> Iterator[tuple[str, Smallest]]:
    scope, policy = kubelet.topology_manager_scope, kubelet.topology_manager_policy
    other = _setting("topologyManagerScope", scope, CONTAINER if scope == POD else POD)
    yield "topologyManagerScope", first_of([SettingsChanged(settings=(other,))])
    at = LOOSE_TO_STRICT.index(policy)
    nearest = sorted(enumerate(LOOSE_TO_STRICT), key=lambda one: (abs(one[0] - at), one[0]))
    policies = [_setting("topologyManagerPolicy", policy, name) for _, name in nearest if name != policy]
    yield "topologyManagerPolicy", first_of(SettingsChanged(settings=(one,)) for one in policies)
    given = kubelet.topology_manager_policy_options.get(PREFER_CLOSEST)
    on = given is not None and given.lower() in {"1", "t", "true"}
    yield _option_kind("topologyManagerPolicyOptions", PREFER_CLOSEST, given, on=on)


def _option_kind(name: SettingName, option: str, given: str | None, *, on: bool) -> tuple[str, Smallest]:
    now = None if on else "true"
    change = SettingsChanged(settings=(_setting(name, given, now, option=option),))
    return option, first_of([change])


def _setting(name: SettingName, was: str | None, now: str | None, *, option: str = "") -> Setting:
    return Setting(name=name, option=option, was=was, now=now)


def _labels(reason: NodeAffinityMismatch) -> list[Change]:
    """The labels with which the selector and one of the terms would hold, fewest first."""
    selector = {one.key: Label(key=one.key, was=one.actual, now=one.wanted) for one in reason.selector}
    found = []
    for term in reason.terms or (None,):
        needed = _of_term(term) if term else {}
        if needed is not None:
            found.append(tuple({**selector, **needed}.values()))
    return [LabelsChanged(labels=labels) for labels in sorted(found, key=len) if labels]


def _of_term(term: TermUnmet) -> dict[str, Label] | None:
    """The labels that the term lacks; None: labels cannot make it hold."""
    needed = {}
    for one in term.unmet:
        label = _label(one)
        if label is None:
            return None
        needed[one.key] = label
    return needed or None


def _label(one: RequirementUnmet) -> Label | None:
    if one.on_field or one.invalid:
        return None
    now: str | None = ""
    match one.operator:
        case "In":
            now = one.values[0]
        case "Exists":
            now = ""
        case "NotIn" | "DoesNotExist":
            now = None
        case "Gt":
            now = str(int(one.values[0]) + 1)
        case "Lt":
            now = str(int(one.values[0]) - 1)
        case _:
            return None
    return Label(key=one.key, was=one.actual, now=now)
