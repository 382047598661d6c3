"""Extended resources that device classes serve: the claim that stands for a pod's requests of them."""

from collections.abc import Iterable, Mapping, Sequence

import msgspec
from msgspec.structs import replace

from nodewright.model.kubernetes.claims import DeviceClass, DeviceRequest, ExactDeviceRequest
from nodewright.model.kubernetes.objects import Container, ContainerExtendedResourceRequest, Pod
from nodewright.model.values.instant import ZERO_TIME, Instant

IMPLICIT_PREFIX = "deviceclass.resource.kubernetes.io/"


class ExtendedRequests(msgspec.Struct, frozen=True):
    """The requests of a claim for extended resources, and which containers they serve."""

    requests: tuple[DeviceRequest, ...] = ()
    mappings: tuple[ContainerExtendedResourceRequest, ...] = ()


def classes_of_resources(classes: Iterable[DeviceClass]) -> dict[str, str]:
    """The names of the device classes by the extended resources that they serve.

    Of two classes for one resource, the newer one serves it; of equally old ones, that with the lower name.

    Follows: v1.36, dynamic-resource-allocation/deviceclass/extendedresourcecache/extendedresourcecache.go.
    Departs: every class serves its implicit resource, where Kubernetes may forget that of a class that is not the
        newest for its other resource, depending on the order in which it learns of them.
    """
    by_age = sorted(classes, key=lambda each: each.metadata.name, reverse=True)
    by_age.sort(key=_created)
    names = {IMPLICIT_PREFIX + each.metadata.name: each.metadata.name for each in by_age}
    return names | {
        each.spec.extended_resource_name: each.metadata.name
        for each in by_age
        if each.spec.extended_resource_name
    }


def _created(device_class: DeviceClass) -> Instant:
    return device_class.metadata.creation_timestamp or ZERO_TIME


def extended_requests(pod: Pod, resources: Iterable[str], classes: Mapping[str, str]) -> ExtendedRequests:
    """The requests that serve these resources of the pod's containers.

    Long-lived containers have a request each. Init containers that end reuse the requests of long-lived containers behind
    them; of what is missing, the largest request serves all.

    Follows: v1.36, pkg/scheduler/framework/plugins/dynamicresources/extendeddynamicresources.go,
        createRequestsAndMappings.
    """
    requests: list[DeviceRequest] = []
    mappings: list[ContainerExtendedResourceRequest] = []
    for resource in sorted(resources):
        own, served = _requests_for(pod, resource, classes[resource])
        requests += own
        mappings += served
    return ExtendedRequests(tuple(sorted(requests, key=lambda each: each.name)), tuple(mappings))


def _requests_for(
    pod: Pod, resource: str, device_class: str
) -> tuple[list[DeviceRequest], list[ContainerExtendedResourceRequest]]:
    initial = pod.spec.init_containers
    containers = (*initial, *pod.spec.containers)
    is_long = [at >= len(initial) or container.is_sidecar for at, container in enumerate(containers)]
    own: list[DeviceRequest | None] = [None] * len(containers)
    mappings: list[ContainerExtendedResourceRequest] = []
    for at, container in enumerate(containers):
        if is_long[at]:
            own[at], served = _request(at, container, resource, device_class, ())
            mappings += served
    largest: DeviceRequest | None = None
    brief: list[ContainerExtendedResourceRequest] = []
    brief_names = set()
    for at, container in enumerate(containers):
        if is_long[at]:
            continue
        request, served = _request(at, container, resource, device_class, own[at:])
        brief += served
        if request is not None:
            brief_names.add(request.name)
            if largest is None or _count(largest) < _count(request):
                largest = request
    if largest is not None:
        name = largest.name
        brief = [
            replace(each, request_name=name) if each.request_name in brief_names else each for each in brief
        ]
    return [each for each in (largest, *own) if each is not None], mappings + brief


def _request(
    at: int, container: Container, resource: str, device_class: str, reusable: Sequence[DeviceRequest | None]
) -> tuple[DeviceRequest | None, list[ContainerExtendedResourceRequest]]:
    """The request for what the reusable ones do not cover, and the requests that serve the container."""
    amounts = container.resources.requests
    needed = amounts[resource].as_int64() if resource in amounts else None
    served: list[ContainerExtendedResourceRequest] = []
    if not needed:
        return None, served
    for request in reusable:
        if request is not None:
            needed -= _count(request)
            served.append(ContainerExtendedResourceRequest(container.name, resource, request.name))
            if needed <= 0:
                return None, served
    name = f"container-{at}-request-{sorted(amounts).index(resource)}"
    exact = ExactDeviceRequest(device_class_name=device_class, allocation_mode="ExactCount", count=needed)
    served.append(ContainerExtendedResourceRequest(container.name, resource, name))
    return DeviceRequest(name=name, exactly=exact), served


def _count(request: DeviceRequest) -> int:
    return request.exactly.count if request.exactly else 0
