"""The aspects of a decision that are not modelled, or that depend on assumed parts of the node."""

from nodewright.engine.core.pod_features import has_app_armor_profile
from nodewright.engine.core.requests.qos_and_priority import QOSClass, qos_class
from nodewright.engine.core.topology.manager_config import RESTRICTED, SINGLE_NUMA_NODE
from nodewright.engine.node.node_config import NodeConfig
from nodewright.model.kubernetes.node_profile import NodePart
from nodewright.model.kubernetes.objects import Container, Pod
from nodewright.model.kubernetes.resource_names import CPU, MEMORY, is_extended, is_huge_page
from nodewright.model.reasons.reason import NotJudged


def unjudged_features(config: NodeConfig, pod: Pod) -> tuple[NotJudged, ...]:
    """The unjudged features that could reject this pod; empty: the decision stands."""
    return tuple(_host(config, pod))


def _host(config: NodeConfig, pod: Pod) -> list[NotJudged]:
    unjudged = []
    context = pod.spec.security_context
    strict = context is not None and context.supplemental_groups_policy == "Strict"
    if strict and config.facts.has_supplemental_groups_policy is None:
        unjudged.append(
            NotJudged(what="container runtime", because="supplementalGroupsPolicy: Strict needs its support")
        )
    if config.facts.has_app_armor is None and has_app_armor_profile(pod):
        unjudged.append(NotJudged(what="AppArmor", because="the pod has an AppArmor profile"))
    return unjudged


_DEMANDING = (RESTRICTED, SINGLE_NUMA_NODE)


def assumptions_for(config: NodeConfig, pod: Pod) -> tuple[NotJudged, ...]:
    """The assumptions that could change this decision, because the managers depend on unknown facts.

    Unknown placements do not matter with one NUMA node, or if the topology manager's policy rejects no pods, as
    the amounts are known.
    """
    if not config.facts.unknown_parts:
        return ()
    questions = (
        *_decided_elsewhere(config, pod),
        *_whole_configuration(config, pod),
        *_cpus(config, pod),
        *_memory(config, pod),
        *_devices(config, pod),
    )
    return tuple(
        NotJudged(what=component, because=_because(config, part))
        for part, component in dict(questions).items()
    )


_Questions = list[tuple[NodePart, str]]


def _because(config: NodeConfig, part: NodePart) -> str:
    cause = config.facts.unknown_parts[part].because
    return ": ".join(filter(None, (_MEANING[part], cause)))


_MEANING = {
    NodePart.CONFIGURATION: "the kubelet's configuration is assumed",
    NodePart.NUMA_NODES: "the NUMA nodes are assumed",
    NodePart.CPU_LAYOUT: "the layout of cores, caches and sockets is assumed",
    NodePart.CPUS: "the CPUs of the pods are assumed",
    NodePart.MEMORY: "the NUMA nodes of the pods' memory are assumed",
    NodePart.DEVICES: "the NUMA nodes and holders of devices are assumed",
    NodePart.CPU_DECISIONS: "",
    NodePart.PODS: "everything about the pods but their allocations is assumed",
}


def _decided_elsewhere(config: NodeConfig, pod: Pod) -> _Questions:
    """A system beside the kubelet chooses the CPUs of all containers, and fails those for which it has none."""
    requests_cpu = any(CPU in container.resources.requests for container in _containers(pod))
    has_pod_level = pod.spec.resources is not None and CPU in pod.spec.resources.requests
    return _unknown(config, "CPU manager", NodePart.CPU_DECISIONS) if requests_cpu or has_pod_level else []


def _whole_configuration(config: NodeConfig, pod: Pod) -> _Questions:
    """With an unknown configuration it is unknown whether the managers affect the pod."""
    uses_managers = qos_class(pod) is QOSClass.GUARANTEED or any(_extended(pod))
    return _unknown(config, "resource managers", NodePart.CONFIGURATION) if uses_managers else []


def _cpus(config: NodeConfig, pod: Pod) -> _Questions:
    policy = config.managers.static_cpu_policy
    if policy is None:
        return []
    demand = policy.cpu_requests(pod)
    if not any(demand.container_cpus(container) for container in _containers(pod)) and not demand.pod_cpus():
        return []
    questions: _Questions = []
    if policy.options.full_pcpus_only or (policy.options.align_by_socket and _is_demanding(config)):
        questions += _unknown(config, "CPU manager", NodePart.CPU_LAYOUT)
    if _is_demanding(config) and _has_several(config):
        questions += _unknown(config, "CPU manager", NodePart.CPUS, NodePart.NUMA_NODES)
    return questions


def _memory(config: NodeConfig, pod: Pod) -> _Questions:
    is_static = config.managers.static_memory_policy is not None
    requests_memory = any(
        name == MEMORY or is_huge_page(name)
        for container in _containers(pod)
        for name in container.resources.requests
    )
    if not is_static or not requests_memory or qos_class(pod) is not QOSClass.GUARANTEED:
        return []
    if not _has_several(config):
        return []
    return _unknown(config, "memory manager", NodePart.MEMORY, NodePart.NUMA_NODES)


def _devices(config: NodeConfig, pod: Pod) -> _Questions:
    if not (_is_demanding(config) and _has_several(config)):
        return []
    unknown = config.facts.unknown_parts.get(NodePart.DEVICES)
    requested = _extended(pod)
    if unknown is None or not (requested & {*unknown.names} if unknown.names else requested):
        return []
    return _unknown(config, "device manager", NodePart.DEVICES)


def _unknown(config: NodeConfig, component: str, *parts: NodePart) -> _Questions:
    return [(part, component) for part in parts if part in config.facts.unknown_parts]


def _is_demanding(config: NodeConfig) -> bool:
    """Whether the topology manager can reject pods; assumed for custom policies."""
    return config.managers.topology.policy in _DEMANDING or config.managers.custom_policy is not None


def _has_several(config: NodeConfig) -> bool:
    """Whether there is, or may be, more than one NUMA node."""
    return NodePart.NUMA_NODES in config.facts.unknown_parts or len(config.parts.machine.topology) > 1


def _containers(pod: Pod) -> tuple[Container, ...]:
    return (*pod.spec.init_containers, *pod.spec.containers)


def _extended(pod: Pod) -> set[str]:
    return {
        name for container in _containers(pod) for name in container.resources.requests if is_extended(name)
    }
