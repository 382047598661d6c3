"""Builds a node from a profile: its configuration, and the state with its pods."""

from collections.abc import Iterator, Sequence

import msgspec
from msgspec.structs import replace

from nodewright.documents.profiles.allocations import (
    allocation_faults,
    allocation_policy_faults,
    pod_allocations,
)
from nodewright.documents.profiles.kubelet_config_files import (
    ConfigHost,
    kubelet_config_from,
    load_kubelet_config,
)
from nodewright.engine.admission.admission_plugins import pod_as_stored, with_canonical_quantities, with_uid
from nodewright.engine.node.events import PodRecovered
from nodewright.engine.node.node_config import (
    NO_CUSTOM_POLICIES,
    CustomPolicies,
    KubeletDefects,
    NodeFacts,
    NodeParts,
    resources_from_facts,
)
from nodewright.engine.node.node_state import NodeState
from nodewright.engine.node.restart.initial_node import with_restored_holdings
from nodewright.engine.node.step import Decision, step
from nodewright.model.errors import Fault, InputError
from nodewright.model.kubernetes.node_profile import (
    NodePart,
    NodeProfile,
    NodeProfileSpec,
    PolicyNames,
    UnknownNodePart,
    kubelet_labels,
    with_cpu_decider,
)
from nodewright.model.kubernetes.resource_names import is_extended
from nodewright.model.reasons.reason import kubelet_start_error, kubelet_text, sentence
from nodewright.model.reasons.verdict import Granted, Refused
from nodewright.model.releases.release_rules import ReleaseTable
from nodewright.model.releases.release_table import (
    AppliedRules,
    Release,
    ReleaseError,
    applied_rules,
    release_warning,
)
from nodewright.model.values.custom_policy import CustomPolicy

DEFAULT_NAME = "node1"


def state_with_pods(
    state: NodeState, spec: NodeProfileSpec, source: str, *, are_stored: bool = False
) -> tuple[NodeState, tuple[str, ...]]:
    """The state with the profile's pods, and warnings about them.

    Pods hold their recorded allocations; without a record, what the managers assign in order. ``are_stored``: the pods
    have uids and the API server's defaults.
    """
    warnings = []
    if spec.allocations is not None:
        restored = _restored(state, spec, source)
        state = restored.value
        warnings += [
            f"a kubelet with these allocations in its state files does not start: {kubelet_start_error(failure)}"
            for failure in restored.because
        ]
    gates = state.config.gates
    pods = [
        pod if are_stored else pod_as_stored(with_uid(with_canonical_quantities(pod)), gates)
        for pod in spec.pods
        if not pod.is_terminal
    ]
    if spec.allocations is not None:
        state, pods = state.with_pods(pods), []
    for pod in pods:
        result = step(state, PodRecovered(pod, is_allocated=False))
        state = result.state
        if result.decision is Decision.REFUSED:
            rejection = kubelet_text(result.because[0])
            warnings.append(
                f"pod {pod.full_name} is on the node, but the node would refuse it after the pods before it: "
                f"{rejection.reason}: {rejection.message}"
            )
    allocatable = state.config.view.allocatable
    warnings += [
        f"the pods on the node request {amount} {resource}, the node has {allocatable.get(resource, 0)}"
        for resource, amount in sorted(state.usage.requests.items())
        if is_extended(resource) and amount > allocatable.get(resource, 0)
    ]
    # Allocations of terminated pods are released before the first decision.
    return _with_placeholders(state.without_stale(), spec), tuple(warnings)


def _with_placeholders(state: NodeState, spec: NodeProfileSpec) -> NodeState:
    """The state with placeholder pods marked, so that decisions that depend on them stay undecided."""
    names = {
        name for unjudged in spec.not_judged if unjudged.part == NodePart.PODS for name in unjudged.names
    }
    open_pods = frozenset(uid for uid, pod in state.pods.items() if pod.full_name in names)
    return msgspec.structs.replace(state, undecided_pods=state.undecided_pods | open_pods)


def _restored(state: NodeState, spec: NodeProfileSpec, source: str) -> Granted[NodeState]:
    config = state.config
    faults = [
        *allocation_faults(spec),
        *allocation_policy_faults(
            spec, config.parts.kubelet, pod_level=config.gates["PodLevelResourceManagers"]
        ),
    ]
    if faults:
        raise InputError([replace(fault, source=source) for fault in faults])
    started = with_restored_holdings(state, pod_allocations(spec))
    if isinstance(started, Refused):
        reason = started.because[0]
        rule = f"the kubelet does not start with these allocations: {kubelet_start_error(reason)} ({sentence(reason)})"
        raise InputError([Fault(path="spec.allocations", rule=rule, source=source)])
    return started


def profile_release(text: str, source: str) -> AppliedRules:
    """The Kubernetes release of a profile, and the release whose rules apply.

    Errors: InputError if the text is not a release.
    """
    try:
        return applied_rules(Release.parse(text))
    except ReleaseError as error:
        fault = Fault(rule=str(error), path="spec.kubernetesVersion", value=text, source=source)
        raise InputError([fault]) from None


def node_parts(
    profile: NodeProfile,
    *,
    kubelet_config: str | None = None,
    policies: Sequence[CustomPolicy] = (),
    source: str = "profile",
    table: ReleaseTable | None = None,
) -> tuple[NodeParts, tuple[str, ...]]:
    """The configuration of a profile's node, and warnings about it; parameters as in `Node.open`.

    ``table`` replaces the gates and rules of the node's release.
    """
    spec = profile.spec
    release = profile_release(spec.kubernetes_version, source)
    host = ConfigHost(
        machine=spec.machine_info, cgroup_version=spec.cgroup_version, release=table or release.table
    )
    if kubelet_config is None:
        place = f"{source}: spec.kubeletConfiguration"
        loaded = kubelet_config_from(spec.kubelet_configuration, place, host=host)
    else:
        loaded = load_kubelet_config(kubelet_config, host=host)
    facts = _facts(profile)
    if kubelet_config is not None:
        unknown = {part: why for part, why in facts.unknown_parts.items() if part != NodePart.CONFIGURATION}
        facts = replace(facts, reported_allocatable={}, unknown_parts=unknown)
    parts = NodeParts(
        release=release,
        gates=loaded.gates,
        kubelet=loaded.config,
        machine=spec.machine_info,
        facts=facts,
        resources=resources_from_facts(spec.machine_info, loaded.config, facts),
        defects=KubeletDefects(spec.kubelet_defects),
        policies=_policies(spec.policies, policies, loaded.config.cpu_manager_policy, source),
    )
    return parts, (*filter(None, [release_warning(release)]), *loaded.warnings, *_unread_sources(spec))


def _unread_sources(spec: NodeProfileSpec) -> Iterator[str]:
    """Warnings about what of a cluster's node could not be read."""
    for source in spec.sources:
        if source.error:
            yield f"{source.name}: not read: {source.error}; assumed: {source.assumed}"


def _policies(
    names: PolicyNames, policies: Sequence[CustomPolicy], cpu_manager_policy: str, source: str
) -> CustomPolicies:
    if not policies and names == PolicyNames():
        return NO_CUSTOM_POLICIES
    from nodewright.predict.policy_registry import chosen_policies  # noqa: PLC0415 - start-up time

    return chosen_policies(names, policies, cpu_manager_policy, source)


def unknown_parts(profile: NodeProfile) -> dict[NodePart, UnknownNodePart]:
    """The parts of the node that are not known, with what else than its kubelet decides about CPUs."""
    parts = {NodePart(unjudged.part): unjudged for unjudged in profile.spec.not_judged}
    if NodePart.CPU_DECISIONS in parts:
        return parts
    judged = with_cpu_decider(profile.spec, profile.metadata.annotations)
    return {NodePart(unjudged.part): unjudged for unjudged in judged.not_judged}


def _facts(profile: NodeProfile) -> NodeFacts:
    spec, name = profile.spec, profile.metadata.name or DEFAULT_NAME
    return NodeFacts(
        name=name,
        labels={**kubelet_labels(name), **spec.labels},
        taints=spec.taints,
        devices=spec.devices,
        preferred_allocation=spec.preferred_allocation,
        advertised={name: amount.value() for name, amount in spec.extended_resources.items()},
        reported_allocatable=spec.allocatable,
        root_fs_bytes=spec.root_fs_capacity,
        cgroup_version=spec.cgroup_version,
        swap_bytes=spec.swap_bytes,
        page_size_bytes=spec.page_size_bytes,
        pid_max=spec.pid_max,
        image_fs=spec.image_fs,
        has_app_armor=spec.app_armor,
        unknown_parts=unknown_parts(profile),
        sources=spec.sources,
    )
