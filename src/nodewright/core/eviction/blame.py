"""What is told of a pod that has to go because the node ran short."""

from nodewright.core.eviction.claims import Claim
from nodewright.core.eviction.signals import Observed, target
from nodewright.core.requests import pod_level_resources_set
from nodewright.model.eviction_reasons import NodeRanShort, OverRequest
from nodewright.model.objects import Pod
from nodewright.model.pressure import RESOURCES
from nodewright.model.resource_names import EPHEMERAL_STORAGE, MEMORY
from nodewright.model.thresholds import Threshold
from nodewright.model.usage import ContainerUse, PodUse
from nodewright.values.quantity import ZERO, Format, Quantity
from nodewright.values.units import wrap_int64


def ran_short(
    threshold: Threshold, observed: Observed, claim: Claim, use: PodUse | None, *, pod_level: bool = True
) -> NodeRanShort:
    """Why the pod goes: the threshold, and which containers use more than they request.

    ``pod_level`` is the gate PodLevelResources.

    Follows: v1.36, eviction/helpers.go, evictionMessage, getThresholdMetInfo.
    """
    resource = RESOURCES[threshold.signal]
    known = use is not None
    return NodeRanShort(
        resource=resource,
        signal=threshold.signal,
        threshold=target(threshold, observed.capacity),
        available=observed.available,
        has_stats=known,
        pod=_whole_pod(claim.pod, use) if use is not None and pod_level and resource == MEMORY else None,
        containers=tuple(_over_request(claim.pod, use, resource)) if use is not None else (),
    )


def _whole_pod(pod: Pod, use: PodUse) -> OverRequest | None:
    """The pod's use beside its own request, also where it uses less."""
    if pod.spec.resources is None or not pod_level_resources_set(pod) or use.memory is None:
        return None
    request = pod.spec.resources.requests.get(MEMORY)
    if request is None:
        return None
    return OverRequest(
        name=pod.metadata.name, usage=_quantity(use.memory.working_set_bytes or 0), request=request
    )


def _over_request(pod: Pod, use: PodUse, resource: str) -> list[OverRequest]:
    requests = {
        container.name: container.resources.requests.get(resource, ZERO)
        # Of containers of one name the first counts, init containers last.
        for container in reversed((*pod.spec.containers, *pod.spec.init_containers))
    }
    found = []
    for container in use.containers:
        request = requests.get(container.name)
        usage = _container_usage(container, resource)
        if request is not None and usage is not None and usage.compare(request) > 0:
            found.append(OverRequest(name=container.name, usage=usage, request=request))
    return found


def _container_usage(container: ContainerUse, resource: str) -> Quantity | None:
    """What a container uses of memory or disk; None: not observed in full, or not told for this resource."""
    if resource == MEMORY:
        memory = container.memory
        if memory is None or memory.working_set_bytes is None:
            return None
        return _quantity(memory.working_set_bytes)
    rootfs, logs = container.rootfs, container.logs
    if resource != EPHEMERAL_STORAGE or rootfs is None or logs is None:
        return None
    if rootfs.used_bytes is None or logs.used_bytes is None:
        return None
    return _quantity(rootfs.used_bytes + logs.used_bytes)


def _quantity(count: int) -> Quantity:
    return Quantity.of(wrap_int64(count), Format.BINARY_SI)
