"""The pods of a node placed in order under one configuration after the other.

Most changes of a configuration concern the resource managers alone. Then the other admission handlers decide as before, so only
the managers are asked again.
"""

from collections.abc import Iterable, Mapping

import msgspec
from msgspec.structs import replace

from nodewright.engine.core.devices.device_assignment import in_use_counts
from nodewright.engine.core.requests.effective_resources import pod_level_resources_set
from nodewright.engine.node.events import PodRecovered
from nodewright.engine.node.managers.hint_providers import NO_HINT, Holdings
from nodewright.engine.node.managers.manager_admission import align_pod
from nodewright.engine.node.node_config import NodeConfig
from nodewright.engine.node.node_state import NodeState, container_names
from nodewright.engine.node.restart.restart_rehearsal import ReconfiguredNode
from nodewright.engine.node.step import Decision, step
from nodewright.model.kubernetes.objects import Pod
from nodewright.model.reasons.cpu import CPUReason
from nodewright.model.reasons.devices import DeviceReason
from nodewright.model.reasons.memory import MemoryReason
from nodewright.model.reasons.topology import TopologyReason
from nodewright.model.values.topology_hints import Hint

MANAGER_REASONS = CPUReason | DeviceReason | MemoryReason | TopologyReason
"""The reasons for which the resource managers reject a pod."""


class ReplayedPod(msgspec.Struct, frozen=True):
    """A pod that was placed, and what the decisions of other handlers than the managers depend on."""

    pod: Pod
    stored: Pod
    """The pod as the node has it afterwards."""
    by_managers: bool
    """Whether the managers rejected the pod."""
    devices: Mapping[str, int]
    """The devices in use afterwards, by resource."""


class Replay(msgspec.Struct, frozen=True):
    """The pods of a node placed in order of admission."""

    node: ReconfiguredNode
    pods: tuple[ReplayedPod, ...]


def replayed(started: NodeState, pods: Iterable[Pod]) -> Replay:
    """The pods placed on a node without pods."""
    state = started
    rejected: set[str] = set()
    placed: list[ReplayedPod] = []
    for pod in pods:
        recovery = step(state, PodRecovered(pod))
        state = recovery.state
        is_rejected = recovery.decision is Decision.REFUSED
        if is_rejected:
            rejected.add(pod.uid)
        by_managers = is_rejected and isinstance(recovery.because[0], MANAGER_REASONS)
        in_use = in_use_counts(state.held.devices)
        placed.append(ReplayedPod(pod, state.pods[pod.uid], by_managers, in_use))
    return Replay(ReconfiguredNode(state, frozenset(rejected)), tuple(placed))


def realigned(started: NodeState, before: Replay) -> ReconfiguredNode | None:
    """The pods of a replay placed on a node without pods that differs in its managers' settings.

    None: it differs in more, or the managers reject other pods or allocate other numbers of devices, so that `replayed` has to
    decide.
    """
    if not _differ_in_managers(started.config, before.node.state.config):
        return None
    managers, held = started.config.managers, started.held
    undemanding = _Undemanding(started.config)
    for entry in before.pods:
        pod = entry.pod
        hinted = undemanding.aligned(held, pod)
        if hinted is not None:
            held, is_rejected = hinted, False
        else:
            alignment = align_pod(managers, held, pod, None)
            held, is_rejected = alignment.held, bool(alignment.rejected_for)
        for provider in managers.providers:
            held = provider.started(held, entry.stored)
        if is_rejected is not entry.by_managers or in_use_counts(held.devices) != entry.devices:
            return None
    return replace(before.node, state=replace(before.node.state, config=started.config, held=held))


def _differ_in_managers(config: NodeConfig, other: NodeConfig) -> bool:
    """Whether the configurations differ at most in the settings of the resource managers."""
    parts = replace(config.parts, kubelet=other.parts.kubelet)
    return replace(config, parts=parts, managers=other.managers) == other


class _Undemanding:
    """Aligns the pods that no manager is asked about: the containers of all get the same hint."""

    def __init__(self, config: NodeConfig) -> None:
        self._managers = config.managers
        self._hint: Hint | None = None

    def aligned(self, held: Holdings, pod: Pod) -> Holdings | None:
        """The holdings with the pod, as `align_pod` returns them; None: a manager has to be asked."""
        managers = self._managers
        if managers.custom_policy is not None or pod_level_resources_set(pod):
            return None
        if any(provider.demand(held, pod) is not None for provider in managers.providers):
            return None
        names = container_names(pod)
        if self._hint is None:
            alignment = align_pod(managers, held, pod, None)
            if alignment.rejected_for or not names:
                return None
            self._hint = alignment.held.hint(pod.uid, names[0])
            return alignment.held
        if self._hint is NO_HINT:
            return held
        hints = {**held.hints, pod.uid: dict.fromkeys(names, self._hint)}
        return replace(held, hints=hints)
