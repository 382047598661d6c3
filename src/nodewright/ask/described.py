"""The node that a profile describes: its parts, and the state with the pods that it has."""

from collections.abc import Sequence
from dataclasses import replace

import msgspec

from nodewright.core.arrival import identified, stored
from nodewright.core.requests import with_defaults
from nodewright.model.policies import Policy
from nodewright.model.profile import NodeProfile, NodeProfileSpec, Part
from nodewright.model.release import Release, ReleaseError, RulesOf, rules_of
from nodewright.model.verdict import Granted, Refused
from nodewright.node.config import Defects, NodeFacts, NodeParts, resources_of
from nodewright.node.events import PodFound
from nodewright.node.restore import restored
from nodewright.node.state import NodeState
from nodewright.node.step import Decision, step
from nodewright.policies import chosen_policies
from nodewright.render.allocatable import release_warning
from nodewright.render.messages import message, start_error
from nodewright.render.sentences import sentence
from nodewright.world.allocations import allocation_faults, kept_by, policy_faults
from nodewright.world.errors import Fault, InputError
from nodewright.world.kubelet_config import Host, kubelet_config_from, load_kubelet_config

DEFAULT_NAME = "node1"


def with_pods(state: NodeState, spec: NodeProfileSpec, source: str) -> tuple[NodeState, tuple[str, ...]]:
    """The node with its pods, and what is odd about them.

    They hold what their allocations say, else what they would be given one after the other.
    """
    odd = []
    if spec.allocations is not None:
        kept = _restored(state, spec, source)
        state = kept.value
        odd += [
            f"a kubelet that is started on what the pods hold does not start: {start_error(one)}"
            for one in kept.because
        ]
    for pod in spec.pods:
        if pod.has_ended:
            continue
        known = with_defaults(identified(stored(pod)))
        found = step(state, PodFound(known, is_placed=spec.allocations is not None))
        state = found.state
        if found.decision is Decision.REFUSED:
            said = message(found.because[0])
            odd.append(
                f"pod {pod.full_name} is on the node, but with the pods before it there it would not get in: "
                f"{said.reason}: {said.message}"
            )
    # What pods hold that have ended is taken back before anybody is asked.
    return _with_stand_ins(state.collected(), spec), tuple(odd)


def _with_stand_ins(state: NodeState, spec: NodeProfileSpec) -> NodeState:
    """The node with the pods that only stand in for unknown ones marked: decisions that hang on them stay open."""
    names = {name for one in spec.not_judged if one.part == Part.PODS for name in one.names}
    open_pods = frozenset(uid for uid, pod in state.pods.items() if pod.full_name in names)
    return msgspec.structs.replace(state, open_pods=state.open_pods | open_pods)


def _restored(state: NodeState, spec: NodeProfileSpec, source: str) -> Granted[NodeState]:
    config = state.config
    faults = [
        *allocation_faults(spec),
        *policy_faults(spec, config.parts.kubelet, pod_level=config.gates["PodLevelResourceManagers"]),
    ]
    if faults:
        raise InputError([replace(fault, source=source) for fault in faults])
    started = restored(state, kept_by(spec))
    if isinstance(started, Refused):
        reason = started.because[0]
        rule = f"the kubelet does not start with them: {start_error(reason)} ({sentence(reason)})"
        raise InputError([Fault(path="spec.allocations", rule=rule, source=source)])
    return started


def release_of(text: str, source: str) -> RulesOf:
    """The release of Kubernetes that a profile names, and whose rules are applied.

    Errors: InputError where it is none.
    """
    try:
        return rules_of(Release.parse(text))
    except ReleaseError as error:
        fault = Fault(rule=str(error), path="spec.kubernetesVersion", value=text, source=source)
        raise InputError([fault]) from None


def parts_of(
    profile: NodeProfile,
    *,
    kubelet_config: str | None = None,
    policies: Sequence[Policy] = (),
    source: str = "profile",
) -> tuple[NodeParts, tuple[str, ...]]:
    """What the node of a profile is made of, and what is odd about it; else as `Node.open`."""
    spec = profile.spec
    host = Host(machine=spec.machine_info, cgroup_version=spec.cgroup_version)
    if kubelet_config is None:
        place = f"{source}: spec.kubeletConfiguration"
        loaded = kubelet_config_from(spec.kubelet_configuration, place, host=host)
    else:
        loaded = load_kubelet_config(kubelet_config, host=host)
    release = release_of(spec.kubernetes_version, source)
    facts = _facts(profile)
    parts = NodeParts(
        release=release,
        gates=loaded.gates,
        kubelet=loaded.config,
        machine=spec.machine_info,
        facts=facts,
        resources=resources_of(spec.machine_info, loaded.config, facts),
        defects=Defects(spec.kubelet_defects),
        policies=chosen_policies(spec.policies, policies, loaded.config.cpu_manager_policy, source),
    )
    return parts, (*filter(None, [release_warning(release)]), *loaded.warnings)


def _facts(profile: NodeProfile) -> NodeFacts:
    spec, name = profile.spec, profile.metadata.name or DEFAULT_NAME
    labels = {"hostname": name, "os": "linux", "arch": "amd64"}
    return NodeFacts(
        name=name,
        labels={**{f"kubernetes.io/{key}": value for key, value in labels.items()}, **spec.labels},
        taints=spec.taints,
        devices=spec.devices,
        preferred_allocation=spec.preferred_allocation,
        advertised={name: amount.value() for name, amount in spec.extended_resources.items()},
        root_fs_bytes=spec.root_fs_capacity,
        cgroup_version=spec.cgroup_version,
        swap_bytes=spec.swap_bytes,
        page_size_bytes=spec.page_size_bytes,
        pid_max=spec.pid_max,
        image_fs=spec.image_fs,
        not_known={Part(one.part): one for one in spec.not_judged},
    )
