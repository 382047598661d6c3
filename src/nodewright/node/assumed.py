"""Where does a decision hang on a part of the node that its description only assumes?"""

from nodewright.core.cpu.policy import StaticPolicy
from nodewright.core.memory.policy import StaticPolicy as StaticMemory
from nodewright.core.requests import QOSClass, qos_class
from nodewright.core.topology.policy import RESTRICTED, SINGLE_NUMA_NODE
from nodewright.model.objects import Container, Pod
from nodewright.model.profile import Part
from nodewright.model.reasons import NotJudged
from nodewright.model.resource_names import MEMORY, is_extended, is_huge_page
from nodewright.node.config import NodeConfig
from nodewright.node.providers import CPUs, Memory

_DEMANDING = (RESTRICTED, SINGLE_NUMA_NODE)


def assumed_parts(config: NodeConfig, pod: Pod) -> tuple[NotJudged, ...]:
    """The assumptions that may let this pod in or turn it away: the managers would decide by what is not known.

    Amounts are known where places are not: with one NUMA node, or where the topology manager turns nobody
    away, the decision stands.
    """
    if not config.facts.not_known:
        return ()
    asks = (
        *_whole_configuration(config, pod),
        *_cpus(config, pod),
        *_memory(config, pod),
        *_devices(config, pod),
    )
    return tuple(NotJudged(what=what, because=_because(config, part)) for part, what in dict(asks).items())


_Asks = list[tuple[Part, str]]


def _because(config: NodeConfig, part: Part) -> str:
    said = config.facts.not_known[part].because
    return f"{_MEANING[part]}: {said}" if said else _MEANING[part]


_MEANING = {
    Part.CONFIGURATION: "the kubelet's configuration is assumed",
    Part.NUMA_NODES: "the NUMA nodes are assumed",
    Part.CPU_LAYOUT: "which CPUs share a core, a cache and a socket is assumed",
    Part.CPUS: "which CPUs pods hold is assumed",
    Part.MEMORY: "of which NUMA nodes pods hold memory is assumed",
    Part.DEVICES: "where devices are and which pods hold them is assumed",
    Part.PODS: "what pods are beside what they hold is assumed",
}


def _whole_configuration(config: NodeConfig, pod: Pod) -> _Asks:
    """Without the configuration it is not known whether the managers have a say at all."""
    has_say = qos_class(pod) is QOSClass.GUARANTEED or any(_extended(pod))
    return _unknown(config, Part.CONFIGURATION, "resource managers") if has_say else []


def _cpus(config: NodeConfig, pod: Pod) -> _Asks:
    policy = _cpu_policy(config)
    if policy is None:
        return []
    wants = policy.wants(pod)
    if not any(wants.container(one) for one in _containers(pod)) and not wants.whole_pod():
        return []
    asks: _Asks = []
    if policy.options.full_pcpus_only or (policy.options.align_by_socket and _is_demanding(config)):
        asks += _unknown(config, Part.CPU_LAYOUT, "CPU manager")
    if _is_demanding(config) and _has_several(config):
        asks += _unknown(config, Part.CPUS, "CPU manager") + _unknown(config, Part.NUMA_NODES, "CPU manager")
    return asks


def _memory(config: NodeConfig, pod: Pod) -> _Asks:
    is_static = any(
        isinstance(one, Memory) and isinstance(one.policy, StaticMemory) for one in config.managers.providers
    )
    asks_some = any(
        name == MEMORY or is_huge_page(name) for one in _containers(pod) for name in one.resources.requests
    )
    if not is_static or not asks_some or qos_class(pod) is not QOSClass.GUARANTEED:
        return []
    if not _has_several(config):
        return []
    return _unknown(config, Part.MEMORY, "memory manager") + _unknown(
        config, Part.NUMA_NODES, "memory manager"
    )


def _devices(config: NodeConfig, pod: Pod) -> _Asks:
    if not (_is_demanding(config) and _has_several(config)):
        return []
    unknown = config.facts.not_known.get(Part.DEVICES)
    asked = _extended(pod)
    if unknown is None or not (asked & {*unknown.names} if unknown.names else asked):
        return []
    return _unknown(config, Part.DEVICES, "device manager")


def _unknown(config: NodeConfig, part: Part, what: str) -> _Asks:
    return [(part, what)] if part in config.facts.not_known else []


def _is_demanding(config: NodeConfig) -> bool:
    """Whether the topology manager turns pods away; of a policy that is not the kubelet's nobody knows."""
    return config.managers.topology.policy in _DEMANDING or config.managers.own is not None


def _has_several(config: NodeConfig) -> bool:
    """Whether there is, or may be, more than one NUMA node."""
    return Part.NUMA_NODES in config.facts.not_known or len(config.parts.machine.topology) > 1


def _cpu_policy(config: NodeConfig) -> StaticPolicy | None:
    for one in config.managers.providers:
        if isinstance(one, CPUs) and isinstance(one.policy, StaticPolicy):
            return one.policy
    return None


def _containers(pod: Pod) -> tuple[Container, ...]:
    return (*pod.spec.init_containers, *pod.spec.containers)


def _extended(pod: Pod) -> set[str]:
    return {name for one in _containers(pod) for name in one.resources.requests if is_extended(name)}
