"""GPU requests from annotations of pods, as some traces have them."""

from collections.abc import Mapping

import msgspec
from msgspec.structs import replace

from nodewright.model.errors import Fault, InputError
from nodewright.model.kubernetes.objects import Container, Pod, ResourceRequirements
from nodewright.model.kubernetes.resource_names import is_extended
from nodewright.model.values.golang import is_number_of_digits, saturated_int
from nodewright.model.values.quantity import Quantity

WHOLE_MILLI = 1000
_COUNT, _MILLI = "count", "milli"


def with_added_requests(pod: Pod, amounts: Mapping[str, int]) -> Pod:
    """The pod with these requests added to its first container."""
    first, *others = pod.spec.containers
    added = {name: Quantity.of(amount) for name, amount in amounts.items() if amount}
    resources = ResourceRequirements(
        requests={**first.resources.requests, **added}, limits={**first.resources.limits, **added}
    )
    containers: tuple[Container, ...] = (replace(first, resources=resources), *others)
    return replace(pod, spec=replace(pod.spec, containers=containers))


def gpu_requests(resource: str, milli_resource: str, count: int, milli: int) -> tuple[dict[str, int], int]:
    """The requests for so many devices, each to that share; and the share if it is less than a whole device.

    Whole devices are allocated. A share only counts against the sum of all devices of the node.

    Units: milli in thousandths of each device.

    >>> gpu_requests("gpu", "milli", 2, 1000), gpu_requests("gpu", "milli", 1, 460)
    (({'gpu': 2, 'milli': 2000}, 0), ({'milli': 460}, 460))
    """
    if not count:
        return {}, 0
    if milli >= WHOLE_MILLI:
        return {resource: count, milli_resource: count * WHOLE_MILLI}, 0
    return {milli_resource: count * milli}, count * milli


class GPUAnnotations(msgspec.Struct, frozen=True):
    """How GPU annotations are read; with an empty key, they are ignored.

    The annotation `key` is the number of devices, and the one with `-milli` for `-count` the share of
    each. Nodes have resources of the same names.
    """

    key: str = ""
    resources: frozenset[str] = frozenset()
    """Resources of the nodes."""

    @property
    def milli_key(self) -> str:
        """The annotation with the share of each device."""
        stem = self.key.removesuffix(_COUNT).removesuffix("-")
        return f"{stem}-{_MILLI}"

    def validated(self) -> "GPUAnnotations":
        """Returns self after a check.

        Errors: InputError if the key is not the name of a resource, or no node has the resource.
        """
        if self.key and not is_extended(self.key):
            rule = "must be an annotation with the name of an extended resource, e.g. example.com/gpu-count"
            raise InputError([Fault(source="--gpu-annotation", value=self.key, rule=rule)])
        if self.key and self.key not in self.resources:
            names_text = ", ".join(sorted(name for name in self.resources if is_extended(name))) or "none"
            rule = f"no node has this resource; extended resources of nodes: {names_text}"
            raise InputError([Fault(source="--gpu-annotation", value=self.key, rule=rule)])
        return self

    def with_gpu_requests(self, pod: Pod, source: str) -> tuple[Pod, int]:
        """The pod with the requests in its annotations, and its share if it is less than a whole device.

        Errors: InputError where an annotation is not a whole number.
        """
        annotations = pod.metadata.annotations
        if not self.key or self.key not in annotations:
            return pod, 0
        count = _whole(annotations[self.key], self.key, source)
        milli = _whole(annotations.get(self.milli_key, str(WHOLE_MILLI)), self.milli_key, source)
        amounts, share = gpu_requests(self.key, self.milli_key, count, milli)
        known_amounts = {name: amount for name, amount in amounts.items() if name in self.resources}
        return with_added_requests(pod, known_amounts) if known_amounts else pod, share


def _whole(text: str, key: str, source: str) -> int:
    if is_number_of_digits(text):
        return saturated_int(text)
    path = f"metadata.annotations[{key}]"
    raise InputError([Fault(source=source, path=path, value=text, rule="must be a whole number")])
