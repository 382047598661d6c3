"""GPUs that a trace carries only as annotations of its pods."""

from collections.abc import Mapping
from dataclasses import dataclass

from msgspec.structs import replace

from nodewright.model.objects import Container, Pod, ResourceRequirements
from nodewright.model.resource_names import is_extended
from nodewright.values.quantity import Quantity
from nodewright.world.errors import Fault, InputError

WHOLE_MILLI = 1000
_COUNT, _MILLI = "count", "milli"


def with_resources(pod: Pod, amounts: Mapping[str, int]) -> Pod:
    """The pod whose first container asks for these pieces besides."""
    first, *others = pod.spec.containers
    more = {name: Quantity.of(amount) for name, amount in amounts.items() if amount}
    asked = ResourceRequirements(
        requests={**first.resources.requests, **more}, limits={**first.resources.limits, **more}
    )
    containers: tuple[Container, ...] = (replace(first, resources=asked), *others)
    return replace(pod, spec=replace(pod.spec, containers=containers))


def gpu_amounts(resource: str, milli_resource: str, count: int, milli: int) -> tuple[dict[str, int], int]:
    """What a pod asks for that wants so many devices, each to that part; and its share if it is of one device.

    Whole devices are placed. A share counts against the sum of all devices of the node alone.

    Units: milli in thousandths of each device.

    >>> gpu_amounts("gpu", "milli", 2, 1000), gpu_amounts("gpu", "milli", 1, 460)
    (({'gpu': 2, 'milli': 2000}, 0), ({'milli': 460}, 460))
    """
    if not count:
        return {}, 0
    if milli >= WHOLE_MILLI:
        return {resource: count, milli_resource: count * WHOLE_MILLI}, 0
    return {milli_resource: count * milli}, count * milli


@dataclass(frozen=True, slots=True)
class GPUs:
    """How annotations are read; an empty key: not at all.

    The annotation `key` says how many devices a pod wants, and its sister (`-milli` for `-count`) how much of
    each. Nodes have resources of the same names.
    """

    key: str = ""
    resources: frozenset[str] = frozenset()
    """What nodes have."""

    @property
    def milli_key(self) -> str:
        """The annotation that says how much of each device."""
        stem = self.key.removesuffix(_COUNT).removesuffix("-")
        return f"{stem}-{_MILLI}"

    def checked(self) -> "GPUs":
        """These.

        Errors: InputError where the key is none, or no node has such a resource.
        """
        if self.key and not is_extended(self.key):
            rule = "an annotation that is the name of a resource, too, is wanted, e.g. example.com/gpu-count"
            raise InputError([Fault(source="--gpu-annotation", value=self.key, rule=rule)])
        if self.key and self.key not in self.resources:
            some = ", ".join(sorted(name for name in self.resources if is_extended(name))) or "none at all"
            rule = f"no node has this resource; extended resources of nodes: {some}"
            raise InputError([Fault(source="--gpu-annotation", value=self.key, rule=rule)])
        return self

    def applied(self, pod: Pod, place: str) -> tuple[Pod, int]:
        """The pod with what its annotations ask for, and its share if it is of one device.

        Errors: InputError where an annotation is no whole number.
        """
        notes = pod.metadata.annotations
        if not self.key or self.key not in notes:
            return pod, 0
        count = _whole(notes[self.key], self.key, place)
        milli = _whole(notes.get(self.milli_key, str(WHOLE_MILLI)), self.milli_key, place)
        amounts, share = gpu_amounts(self.key, self.milli_key, count, milli)
        there = {name: amount for name, amount in amounts.items() if name in self.resources}
        return with_resources(pod, there) if there else pod, share


def _whole(text: str, key: str, place: str) -> int:
    if text.isascii() and text.isdigit():
        return int(text)
    path = f"metadata.annotations[{key}]"
    raise InputError([Fault(source=place, path=path, value=text, rule="a whole number is wanted")])
