"""KubeVirt's instance types and preferences: the virtual machines that name them, with their CPUs, memory and devices."""

from collections.abc import Iterator, Mapping
from struct import pack, unpack
from typing import Any

from nodewright.model.errors import Fault, InputError
from nodewright.model.values.quantity import Quantity, QuantityError

_TYPES = ("VirtualMachineClusterInstancetype", "VirtualMachineInstancetype")
_PREFERENCES = ("VirtualMachineClusterPreference", "VirtualMachinePreference")
"""The kinds for the cluster, which is the default, and for a namespace."""
_MAX_CPUS = 4096
_TYPE_FIELDS = {
    "cpu.guest": "domain.cpu.sockets",
    "cpu.dedicatedCPUPlacement": "domain.cpu.dedicatedCpuPlacement",
    "cpu.isolateEmulatorThread": "domain.cpu.isolateEmulatorThread",
    "cpu.numa": "domain.cpu.numa",
    "cpu.realtime": "domain.cpu.realtime",
    "memory.guest": "domain.memory.guest",
    "memory.hugepages": "domain.memory.hugepages",
    "gpus": "domain.devices.gpus",
    "hostDevices": "domain.devices.hostDevices",
    "ioThreads": "domain.ioThreads",
    "launchSecurity": "domain.launchSecurity",
    "schedulerName": "schedulerName",
}
"""The fields of an instance type and where the machine has them. Only the number of CPUs counts, not their topology."""
_PREFERENCE_FIELDS = {
    "devices.preferredAutoattachGraphicsDevice": "domain.devices.autoattachGraphicsDevice",
    "devices.preferredAutoattachPodInterface": "domain.devices.autoattachPodInterface",
    "devices.preferredAutoattachSerialConsole": "domain.devices.autoattachSerialConsole",
    "devices.preferredTPM": "domain.devices.tpm",
    "preferredTerminationGracePeriodSeconds": "terminationGracePeriodSeconds",
    "preferredArchitecture": "architecture",
    "preferredLaunchSecurity": "domain.launchSecurity",
}
_NOT_BESIDE_A_TYPE = (
    "domain.cpu.cores",
    "domain.cpu.threads",
    *(f"domain.resources.{side}.{name}" for side in ("requests", "limits") for name in ("cpu", "memory")),
)


class MachineTypes:
    """The instance types and preferences that are read."""

    def __init__(self) -> None:
        self._specs: dict[tuple[str, str, str], dict[str, Any]] = {}

    def add(self, value: Mapping[str, Any], namespace: str) -> Iterator[Fault]:
        """Adds an instance type or a preference, and returns the faults of what counts of it."""
        kind, meta = str(value.get("kind")), value.get("metadata")
        meta = meta if isinstance(meta, dict) else {}
        spec = value.get("spec")
        spec = spec if isinstance(spec, dict) else {}
        if kind in _TYPES:
            yield from _faults(spec)
        is_of_cluster = kind in (_TYPES[0], _PREFERENCES[0])
        key = (kind, "" if is_of_cluster else str(meta.get("namespace") or namespace), str(meta.get("name")))
        self._specs[key] = spec

    def merge(self, other: "MachineTypes") -> None:
        """Adds what the other has."""
        self._specs |= other._specs  # noqa: SLF001 - its own kind

    def applied(self, value: dict[str, Any], namespace: str) -> tuple[dict[str, Any], dict[str, str]]:
        """The machine with what its instance type and its preference give it, and the names of those that are not known.

        Follows: KubeVirt v1.9, pkg/instancetype/apply, pkg/instancetype/preference/apply.
        Departs: a type that is inferred from a volume, or kept in a revision, is not known.
        Errors:  InputError with all fields that the machine must not have beside its type.
        """
        path = (
            "spec.virtualMachineTemplate.spec" if "virtualMachineTemplate" in _part(value, "spec") else "spec"
        )
        owner = _at(value, path)
        meta = _part(value, "metadata")
        namespace = str(meta.get("namespace") or namespace)
        unknown = {}
        for field, kinds, added in (
            ("instancetype", _TYPES, _typed),
            ("preference", _PREFERENCES, _preferred),
        ):
            reference, template = _at(owner, field), _at(value, f"{path}.template")
            if not isinstance(reference, dict):
                continue
            spec = self._named(reference, kinds, namespace)
            if spec is None:
                unknown[field] = str(reference.get("name") or "inferred from a volume")
                continue
            template = template if isinstance(template, dict) else {}
            value = _with(value, f"{path}.template", added(template, spec, f"{path}.template.spec"))
            value = _with(value, f"{path}.{field}", None)
        return value, unknown

    def _named(
        self, reference: Mapping[str, Any], kinds: tuple[str, str], namespace: str
    ) -> dict[str, Any] | None:
        is_of_namespace = str(reference.get("kind")).lower() == kinds[1].lower()
        kind = kinds[is_of_namespace]
        key = (kind, namespace if is_of_namespace else "", str(reference.get("name")))
        return self._specs.get(key)


def _faults(spec: Mapping[str, Any]) -> Iterator[Fault]:
    cpus, memory = _at(spec, "cpu.guest"), _at(spec, "memory.guest")
    percent = _at(spec, "memory.overcommitPercent") or 0
    if not _is_number(cpus, 1, _MAX_CPUS):
        yield Fault(path="spec.cpu.guest", value=cpus, rule=f"must be 1 to {_MAX_CPUS}")
    if not _is_number(percent, 0, 100):
        yield Fault(path="spec.memory.overcommitPercent", value=percent, rule="must be 0 to 100")
    try:
        Quantity.parse(str(memory))
    except QuantityError as error:
        yield Fault(path="spec.memory.guest", value=memory, rule=str(error))


def _is_number(value: Any, least: int, most: int) -> bool:
    return isinstance(value, int) and not isinstance(value, bool) and least <= value <= most


def _typed(template: dict[str, Any], spec: Mapping[str, Any], path: str) -> dict[str, Any]:
    """The template with the fields of an instance type.

    Errors: InputError for fields that it has as well.
    """
    machine = _part(template, "spec")
    given = [(place, _at(spec, field)) for field, place in _TYPE_FIELDS.items()]
    taken = [place for place, item in given if item is not None] + [*_NOT_BESIDE_A_TYPE]
    faults = [
        Fault(path=f"{path}.{place}", value=own, rule="is set by the instance type as well")
        for place in taken
        if (own := _at(machine, place)) not in (None, 0, False, [])
    ]
    if faults:
        raise InputError(faults)
    for place, item in given:
        machine = machine if item is None else _with(machine, place, item)
    if percent := _at(spec, "memory.overcommitPercent"):
        guest = Quantity.parse(str(_at(spec, "memory.guest")))
        requested = Quantity.of(_without_percent(guest.value(), percent), guest.format)
        machine = _with(machine, "domain.resources.requests.memory", str(requested))
    if selector := _part(spec, "nodeSelector"):
        machine = {**machine, "nodeSelector": {**selector, **_part(machine, "nodeSelector")}}
    return _with_annotations({**template, "spec": machine}, spec)


def _preferred(template: dict[str, Any], spec: Mapping[str, Any], path: str) -> dict[str, Any]:
    """The template with the fields of a preference that it does not set itself."""
    del path
    machine = _part(template, "spec")
    for field, place in _PREFERENCE_FIELDS.items():
        item = _at(spec, field)
        if item is not None and _at(machine, place) is None:
            machine = _with(machine, place, item)
    interfaces, model = (
        _at(machine, "domain.devices.interfaces"),
        _at(spec, "devices.preferredInterfaceModel"),
    )
    if model and isinstance(interfaces, list):
        named = [{"model": model, **each} if isinstance(each, dict) else each for each in interfaces]
        machine = _with(machine, "domain.devices.interfaces", named)
    return _with_annotations({**template, "spec": machine}, spec)


def _with_annotations(template: dict[str, Any], spec: Mapping[str, Any]) -> dict[str, Any]:
    added = _part(spec, "annotations")
    meta = _part(template, "metadata")
    own = _part(meta, "annotations")
    return {**template, "metadata": {**meta, "annotations": {**added, **own}}} if added else template


def _without_percent(amount: int, percent: int) -> int:
    """The amount without so much of it, in the 32 bits that KubeVirt computes with."""

    def short(number: float) -> float:
        rounded: float = unpack("f", pack("f", number))[0]
        return rounded

    return int(short(short(amount) * short(1 - short(percent / 100))))


def _part(value: Mapping[str, Any], name: str) -> dict[str, Any]:
    part = value.get(name)
    return part if isinstance(part, dict) else {}


def _at(value: Any, path: str) -> Any:
    for step in path.split("."):
        value = value.get(step) if isinstance(value, dict) else None
    return value


def _with(value: dict[str, Any], path: str, item: Any) -> dict[str, Any]:
    """The object with another item at the path; what is no object on the way stays."""
    name, _, rest = path.partition(".")
    if not rest:
        return {**value, name: item}
    part = value.get(name) if value.get(name) is not None else {}
    return {**value, name: _with(part, rest, item) if isinstance(part, dict) else part}
