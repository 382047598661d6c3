"""Why does a resource manager have no opinion on where a container's resources are to be?"""

from typing import Literal, TypeAlias

from nodewright.core.cpu.policy import StaticPolicy
from nodewright.core.cpu.wants import PodWants
from nodewright.core.memory.policy import StaticPolicy as StaticMemory
from nodewright.core.memory.wants import MemoryWants
from nodewright.model.objects import Container, Pod
from nodewright.model.topology_reasons import ResourceHints
from nodewright.node.config import NodeConfig
from nodewright.node.providers import CPUs, Memory

Silence: TypeAlias = Literal[
    "policy",
    "class",
    "pod-level resources",
    "not whole",
    "inexact",
    "nothing fits",
    "nothing asked",
    "nowhere",
]
"""`policy`: it never has one; `class`: the pod is not Guaranteed; `not whole`: no whole number of CPUs; `inexact`: an
amount that it cannot hold; `nothing fits`: memory, which allocation will refuse; `nowhere`: devices without NUMA nodes."""


def silence(config: NodeConfig, pod: Pod, container: str, said: ResourceHints) -> Silence:
    """Why the manager was silent about the container, or about the pod as a whole where no container is named."""
    everybody = (*pod.spec.init_containers, *pod.spec.containers)
    asker = next((one for one in everybody if one.name == container), None)
    for provider in config.managers.providers:
        if provider.name != said.provider:
            continue
        if isinstance(provider, CPUs):
            policy = provider.policy
            return _of_cpus(policy.wants(pod)) if isinstance(policy, StaticPolicy) else "policy"
        if isinstance(provider, Memory):
            books = provider.policy
            return _of_memory(books.wants(pod), asker) if isinstance(books, StaticMemory) else "policy"
    return "nowhere" if said.resource else "nothing asked"


def _of_cpus(wants: PodWants) -> Silence:
    if wants.is_skipped:
        return "pod-level resources"
    return "not whole" if wants.is_guaranteed else "class"


def _of_memory(wants: MemoryWants, asker: Container | None) -> Silence:
    if wants.is_skipped:
        return "pod-level resources"
    if not wants.is_guaranteed:
        return "class"
    asked = wants.container(asker) if asker is not None else wants.whole_pod()
    if not isinstance(asked, dict):
        return "inexact"
    return "nothing fits" if asked else "nothing asked"
