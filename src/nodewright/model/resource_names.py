"""What kind of resource a name stands for."""

from functools import lru_cache

from nodewright.values.names import is_label_key

CPU = "cpu"
MEMORY = "memory"
EPHEMERAL_STORAGE = "ephemeral-storage"
PODS = "pods"
INODES = "inodes"
PIDS = "pids"

HUGE_PAGES_PREFIX = "hugepages-"
ATTACHABLE_VOLUMES_PREFIX = "attachable-volumes-"
NATIVE_NAMESPACE = "kubernetes.io/"
QUOTA_REQUESTS_PREFIX = "requests."

_FIRST = {CPU: 0, MEMORY: 1, EPHEMERAL_STORAGE: 2}


def in_order(name: str) -> tuple[int, str]:
    """A sort key: cpu, memory, ephemeral-storage, then the rest by name.

    >>> sorted(["nvidia.com/gpu", "memory", "hugepages-2Mi", "cpu"], key=in_order)
    ['cpu', 'memory', 'hugepages-2Mi', 'nvidia.com/gpu']
    """
    return _FIRST.get(name, len(_FIRST)), name


def is_huge_page(name: str) -> bool:
    """Whether it is a size of huge pages."""
    return name.startswith(HUGE_PAGES_PREFIX)


def is_in_bytes(name: str) -> bool:
    """Whether amounts of it are bytes."""
    return name in (MEMORY, EPHEMERAL_STORAGE) or is_huge_page(name)


def is_pod_level(name: str) -> bool:
    """Whether `spec.resources` of a pod may name it; other names there are passed over.

    Follows: v1.36, component-helpers/resource/helpers.go, IsSupportedPodLevelResource.
    """
    return name in {CPU, MEMORY} or name.startswith(HUGE_PAGES_PREFIX)


def is_native(name: str) -> bool:
    """Whether it belongs to Kubernetes: without a domain, or in one of its own.

    Follows: v1.36, pkg/apis/core/v1/helper/helpers.go, IsNativeResource.
    """
    return "/" not in name or NATIVE_NAMESPACE in name


@lru_cache(maxsize=4096)
def is_extended(name: str) -> bool:
    """Whether it is an extended resource, such as `nvidia.com/gpu`.

    Follows: v1.36, pkg/apis/core/v1/helper/helpers.go, IsExtendedResourceName.

    >>> is_extended("nvidia.com/gpu"), is_extended("cpu"), is_extended("kubernetes.io/batch")
    (True, False, False)
    """
    if is_native(name) or name.startswith(QUOTA_REQUESTS_PREFIX):
        return False
    return is_label_key(QUOTA_REQUESTS_PREFIX + name)


@lru_cache(maxsize=4096)
def is_scalar(name: str) -> bool:
    """Whether the scheduler counts it in whole pieces besides cpu, memory and ephemeral-storage.

    Follows: v1.36, pkg/scheduler/util/utils.go, IsScalarResourceName.
    """
    return (
        is_extended(name)
        or is_huge_page(name)
        or NATIVE_NAMESPACE in name
        or name.startswith(ATTACHABLE_VOLUMES_PREFIX)
    )
