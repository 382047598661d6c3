"""Kinds of resources by name, and amounts of resources in readable units."""

from nodewright.model.kubernetes.name_validation import is_label_key
from nodewright.model.values.bounded_cache import cached_texts
from nodewright.model.values.quantity import INT64_MAX, Quantity, QuantityError

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


def resource_sort_key(name: str) -> tuple[int, str]:
    """A sort key: cpu, memory, ephemeral-storage, then the rest by name.

    >>> sorted(["nvidia.com/gpu", "memory", "hugepages-2Mi", "cpu"], key=resource_sort_key)
    ['cpu', 'memory', 'hugepages-2Mi', 'nvidia.com/gpu']
    """
    return _FIRST.get(name, len(_FIRST)), name


def is_huge_page(name: str) -> bool:
    """Whether the resource is huge pages of some size."""
    return name.startswith(HUGE_PAGES_PREFIX)


HUGE_PAGE_RULE = "the name of huge pages ends in their size, at least 1Ki, such as hugepages-2Mi"


def huge_page_bytes(name: str) -> int | None:
    """The size of the pages of a resource `hugepages-SIZE`; None if the name has none.

    >>> huge_page_bytes("hugepages-2Mi"), huge_page_bytes("hugepages-0"), huge_page_bytes("hugepages-x")
    (2097152, None, None)
    """
    try:
        size = Quantity.parse(name.removeprefix(HUGE_PAGES_PREFIX)).value()
    except QuantityError:
        return None
    return size if 1024 <= size <= INT64_MAX else None


def is_in_bytes(name: str) -> bool:
    """Whether amounts of the resource are bytes."""
    return name in (MEMORY, EPHEMERAL_STORAGE) or is_huge_page(name)


def is_supported_pod_level(name: str, *, huge_pages: bool = True) -> bool:
    """Whether `spec.resources` of a pod may name the resource; other names are ignored there.

    Without ``huge_pages``, as in releases up to 1.32, `hugepages-*` is ignored as well.

    Follows: v1.36, component-helpers/resource/helpers.go, IsSupportedPodLevelResource.
    """
    return name in {CPU, MEMORY} or (huge_pages and name.startswith(HUGE_PAGES_PREFIX))


def is_native(name: str) -> bool:
    """Whether the resource is native to Kubernetes: without a domain, or with one of its own.

    Follows: v1.36, pkg/apis/core/v1/helper/helpers.go, IsNativeResource.
    """
    return "/" not in name or NATIVE_NAMESPACE in name


@cached_texts(4096)
def is_extended(name: str) -> bool:
    """Whether the resource is extended, such as `nvidia.com/gpu`.

    Follows: v1.36, pkg/apis/core/v1/helper/helpers.go, IsExtendedResourceName.

    >>> is_extended("nvidia.com/gpu"), is_extended("cpu"), is_extended("kubernetes.io/batch")
    (True, False, False)
    """
    if is_native(name) or name.startswith(QUOTA_REQUESTS_PREFIX):
        return False
    return is_label_key(QUOTA_REQUESTS_PREFIX + name)


@cached_texts(4096)
def is_scalar(name: str) -> bool:
    """Whether the scheduler counts the resource in whole pieces, besides cpu, memory and ephemeral-storage.

    Follows: v1.36, pkg/scheduler/util/utils.go, IsScalarResourceName.
    """
    return (
        is_extended(name)
        or is_huge_page(name)
        or NATIVE_NAMESPACE in name
        or name.startswith(ATTACHABLE_VOLUMES_PREFIX)
    )


def counted_amount(name: str, amount: Quantity) -> int:
    """The amount as Kubernetes counts it: cpu in thousandths, everything else in units; rounded up."""
    return amount.milli_value() if name == CPU else amount.value()


_BINARY = ("", "Ki", "Mi", "Gi", "Ti", "Pi", "Ei")


def amount_text(resource: str, amount: int) -> str:
    """The amount of a resource in the largest unit that shows it exactly.

    Units: thousandths in for cpu, bytes for memory, storage and huge pages, pieces for everything else.

    >>> amount_text("cpu", 1500), amount_text("cpu", 2000), amount_text("memory", 3 << 29), amount_text("pods", 110)
    ('1500m', '2', '1536Mi', '110')
    """
    if resource == CPU:
        return f"{amount}m" if amount % 1000 else str(amount // 1000)
    if is_in_bytes(resource):
        power = 0
        while amount and amount % 1024 == 0 and power < len(_BINARY) - 1:
            amount, power = amount // 1024, power + 1
        return f"{amount}{_BINARY[power]}"
    return str(amount)


def file_value_text(value: str) -> str:
    """The value of a file about memory: a number of bytes as `amount_text` writes it, other words as they are.

    >>> file_value_text("1073741824"), file_value_text("max")
    ('1Gi', 'max')
    """
    return amount_text(MEMORY, int(value)) if value.isdecimal() else value


def readable_amount(resource: str, amount: int, digits: int = 2) -> str:
    """The amount in CPUs, in the largest unit of bytes that fits, or as a plain number.

    Units: as `amount_text`; sizes are rounded to hundredths, or to so many ``digits``.

    >>> readable_amount("cpu", 1500), readable_amount("memory", 3 << 29), readable_amount("memory", 10**8)
    ('1.5', '1.5Gi', '95.37Mi')
    """
    if resource == CPU:
        return _trimmed(f"{amount / 1000:.3f}")
    if is_in_bytes(resource):
        power = max(abs(amount).bit_length() - 1, 0) // 10
        return f"{_trimmed(f'{amount / (1 << 10 * power):.{digits}f}')}{_BINARY[power]}"
    return str(amount)


def distinguishable_amounts(resource: str, *amounts: int) -> list[str]:
    """The amounts, readable; with as many digits as different ones need to look different.

    >>> distinguishable_amounts("memory", 1 << 30, (1 << 30) - 1)
    ['1Gi', '1023.999999Mi']
    """
    for digits in range(2, 20):
        texts = [readable_amount(resource, amount, digits) for amount in amounts]
        if len({_shown_amount(text) for text in texts}) == len(set(amounts)):
            return texts
    return list(map(str, amounts))


def _shown_amount(text: str) -> float:
    """What the text says: 1024Mi and 1Gi are equal."""
    number = text.rstrip("KMGTPEi")
    return float(number) * (1 << 10 * _BINARY.index(text[len(number) :]))


def _trimmed(decimal: str) -> str:
    return decimal.rstrip("0").rstrip(".")
