"""Pods in a few words, for tests and notebooks."""

from nodewright.model.objects import (
    Container,
    ObjectMeta,
    Pod,
    PodSpec,
    ResourceList,
    ResourceRequirements,
)
from nodewright.model.resource_names import CPU, MEMORY
from nodewright.values.quantity import Quantity


def amounts(text: str) -> ResourceList:
    """Amounts by resource: `cpu/memory`, or name=amount with blanks between.

    >>> amounts("50m/100Mi")
    {'cpu': Quantity('50m'), 'memory': Quantity('100Mi')}
    >>> amounts("memory=1Gi nvidia.com/gpu=2")
    {'memory': Quantity('1Gi'), 'nvidia.com/gpu': Quantity('2')}
    """
    if not text:
        return {}
    if "=" not in text:
        cpu, memory = text.split("/")
        return {CPU: Quantity.parse(cpu), MEMORY: Quantity.parse(memory)}
    pairs = (pair.rsplit("=", 1) for pair in text.split())
    return {name: Quantity.parse(amount) for name, amount in pairs}


def container(name: str, requests: str = "", limits: str = "") -> Container:
    """A container, or an ordinary init container."""
    return Container(
        name=name, resources=ResourceRequirements(requests=amounts(requests), limits=amounts(limits))
    )


def sidecar(name: str, requests: str = "", limits: str = "") -> Container:
    """An init container that keeps running (`restartPolicy: Always`)."""
    return Container(
        name=name,
        restart_policy="Always",
        resources=ResourceRequirements(requests=amounts(requests), limits=amounts(limits)),
    )


def pod(*containers: Container, init: tuple[Container, ...] = (), overhead: str = "") -> Pod:
    """A pod with these containers and init containers.

    >>> pod(container("app", "50m/100Mi")).full_name
    'default/pod'
    """
    spec = PodSpec(containers=containers, init_containers=init, overhead=amounts(overhead))
    return Pod(metadata=ObjectMeta(name="pod"), spec=spec)
