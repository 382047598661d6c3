"""The nodes that Karpenter's pools and claims make on EC2, with the amounts that it computes for them."""

import re
from collections.abc import Iterator, Mapping, Sequence
from math import ceil
from typing import Annotated, Any

import msgspec
from msgspec.structs import replace

from nodewright.documents.formats.decode import decode, decoding_fault
from nodewright.documents.formats.object_location import ObjectLocation
from nodewright.documents.profiles.catalogue import catalogue_machine, real_machines
from nodewright.documents.profiles.planned_objects import (
    PlannedNode,
    PlannedObjects,
    PlannedTaint,
    UnknownAmountsError,
    node_object,
    number_of,
)
from nodewright.model.errors import Fault, InputError
from nodewright.model.kubernetes.node_profile import architecture_labels
from nodewright.model.kubernetes.objects import ObjectMeta, ResourceList
from nodewright.model.kubernetes.resource_names import CPU, EPHEMERAL_STORAGE, MEMORY, PODS
from nodewright.model.values.golang import plain_float
from nodewright.model.values.quantity import ZERO, Quantity, QuantityError, QuantityFormat

_MIB, _GIB = 1 << 20, 1 << 30
_TYPE, _ARCHITECTURE = "node.kubernetes.io/instance-type", "kubernetes.io/arch"
_POOL, _AWS = "karpenter.sh/nodepool", "karpenter.k8s.aws/instance-"
_FAMILIES = {"al2": "AL2", "al2023": "AL2023", "bottlerocket": "Bottlerocket"}
_GPUS = {"nvidia": "nvidia.com/gpu", "amd": "amd.com/gpu", "habana": "habana.ai/gaudi"}
_EC2_NAME = re.compile(r"([a-z]+)(-[0-9]+tb)?([0-9]+)[a-z0-9-]*\.[a-z0-9-]+")
_MAX_CPUS, _MAX_MIB = 1 << 13, 1 << 27
"""Larger machines are not assumed from what requirements say of them."""
_VM_SHARE = 0.075
"""Of an instance's memory, what Karpenter takes for its hypervisor (`--vm-memory-overhead-percent`)."""
_CPU_SHARES = ((1000, 0.06), (2000, 0.01), (4000, 0.005), (1 << 31, 0.0025))
"""The reserved share of the thousandths of a CPU up to each number, from the number before."""


class _Part(msgspec.Struct, frozen=True, kw_only=True, rename="camel"):
    """A part of an object, of which only the fields below count."""


class Requirement(_Part, frozen=True, kw_only=True):
    """What a label of a node must be."""

    key: str = ""
    operator: str = ""
    values: tuple[str, ...] = ()

    def allows(self, value: str) -> bool:
        """Whether the label may have this value."""
        if self.operator in ("In", "NotIn"):
            return (value in self.values) is (self.operator == "In")
        if self.operator in ("Exists", "DoesNotExist"):
            return self.operator == "Exists"
        number, bound = number_of(value), number_of(self.values[0] if len(self.values) == 1 else "")
        if number is None or bound is None:
            return False
        orders = {"Gt": number > bound, "Lt": number < bound, "Gte": number >= bound, "Lte": number <= bound}
        return orders.get(self.operator, False)


class NodeClassReference(_Part, frozen=True, kw_only=True):
    """The object with the settings of a cloud."""

    kind: str = ""
    name: str = ""


class ClaimSpec(_Part, frozen=True, kw_only=True):
    """What a node must be."""

    taints: tuple[PlannedTaint, ...] = ()
    requirements: tuple[Requirement, ...] = ()
    node_class_ref: NodeClassReference = NodeClassReference()


class ClaimStatus(_Part, frozen=True, kw_only=True):
    """What Karpenter expects of the machine that it has ordered."""

    node_name: str = ""
    capacity: ResourceList = {}
    allocatable: ResourceList = {}


class NodeClaim(_Part, frozen=True, kw_only=True):
    """Karpenter's NodeClaim: a machine that is ordered; or the template of a pool."""

    metadata: ObjectMeta = ObjectMeta()
    spec: ClaimSpec = ClaimSpec()
    status: ClaimStatus = ClaimStatus()


class PoolSpec(_Part, frozen=True, kw_only=True):
    """Which nodes a pool may have."""

    template: NodeClaim = NodeClaim()
    limits: ResourceList = {}


class NodePool(_Part, frozen=True, kw_only=True):
    """Karpenter's NodePool."""

    metadata: ObjectMeta = ObjectMeta()
    spec: PoolSpec = PoolSpec()


class ImageTerm(_Part, frozen=True, kw_only=True):
    """An image, such as `al2023@latest`."""

    alias: str = ""


class Disk(_Part, frozen=True, kw_only=True):
    """A disk by its size."""

    volume_size: Quantity | None = None


class DiskMapping(_Part, frozen=True, kw_only=True):
    """A disk of a machine."""

    device_name: str = ""
    ebs: Disk = Disk()
    root_volume: bool = False


class NodeClassSpec(_Part, frozen=True, kw_only=True):
    """What machines start with."""

    ami_family: str = ""
    ami_selector_terms: tuple[ImageTerm, ...] = ()
    kubelet: dict[str, Any] = {}
    block_device_mappings: tuple[DiskMapping, ...] = ()
    instance_store_policy: str = ""


class EC2NodeClass(_Part, frozen=True, kw_only=True):
    """Karpenter's EC2NodeClass."""

    metadata: ObjectMeta = ObjectMeta()
    spec: NodeClassSpec = NodeClassSpec()

    @property
    def family(self) -> str:
        """The family of its image."""
        aliases = (term.alias.partition("@")[0] for term in self.spec.ami_selector_terms if term.alias)
        return self.spec.ami_family or _FAMILIES.get(next(aliases, ""), "")


_Count = Annotated[int, msgspec.Meta(ge=0, le=2**31 - 1)]


class Reservations(_Part, frozen=True, kw_only=True):
    """The fields of a kubelet's configuration that Karpenter computes with."""

    max_pods: _Count | None = None
    pods_per_core: _Count = 0
    kube_reserved: ResourceList = {}
    system_reserved: ResourceList = {}
    eviction_hard: dict[str, str] = {}


class Instance(msgspec.Struct, frozen=True, kw_only=True):
    """A machine of a cloud."""

    name: str
    cpus: int
    memory_mib: int
    architecture: str = "amd64"
    devices: Mapping[str, int] = {}
    address_pods: int | None = None
    """The pods for which the machine has addresses; None: unknown."""

    def labels(self) -> dict[str, str]:
        """The labels that Karpenter selects it by."""
        labels = {
            **architecture_labels(self.architecture),
            f"{_AWS}cpu": str(self.cpus),
            f"{_AWS}memory": str(self.memory_mib),
        }
        if match := _EC2_NAME.fullmatch(self.name):
            family, _, size = self.name.partition(".")
            labels |= {_TYPE: self.name, f"{_AWS}family": family, f"{_AWS}size": size}
            labels |= {f"{_AWS}category": match[1], f"{_AWS}generation": match[3]}
        for maker, resource in _GPUS.items():
            if resource in self.devices:
                labels |= {
                    f"{_AWS}gpu-count": str(self.devices[resource]),
                    f"{_AWS}gpu-manufacturer": maker,
                }
        return labels


def karpenter_nodes(objects: PlannedObjects, existing: Sequence[str]) -> Iterator[PlannedNode]:
    """The nodes of claims, without those that exist, and of pools; appends to the notes what is assumed and not known.

    Follows: karpenter-provider-aws v1.9, pkg/providers/instancetype/types.go, NewInstanceType.
    Departs: a pool is one node of each instance type, whatever they cost and wherever they are.
    """
    for claim, location, source in objects.of_kind(NodeClaim):
        name = claim.status.node_name or claim.metadata.name
        if name in existing:
            continue
        if claim.status.capacity:
            amounts = claim.status.capacity, claim.status.allocatable
            node = node_object(name, claim.metadata.labels, claim.spec.taints, *amounts)
            shape = claim.metadata.labels.get(_TYPE, "")
            yield PlannedNode(node=node, shape=_shape(shape), location=location, source=source)
        else:
            yield from _of_claim(objects, claim, "NodeClaim", {}, location, source)
    for pool, location, source in objects.of_kind(NodePool):
        name, template = pool.metadata.name, pool.spec.template
        labels = {**template.metadata.labels, _POOL: name}
        claim = replace(template, metadata=replace(template.metadata, name=name, labels=labels))
        yield from _of_claim(objects, claim, "NodePool", pool.spec.limits, location, source)


def _of_claim(
    objects: PlannedObjects,
    claim: NodeClaim,
    kind: str,
    limits: ResourceList,
    location: ObjectLocation,
    source: str,
) -> Iterator[PlannedNode]:
    """The nodes of a pool or of a claim without a machine, one of each instance type that is known."""
    label = f"{kind} {(name := claim.status.node_name or claim.metadata.name)}"
    node_class, place = _class_of(objects, claim.spec.node_class_ref, label)
    if node_class is None or place is None:
        return
    made = []
    single = {each.key: each.values[0] for each in claim.spec.requirements if _is_single(each)}
    for instance in _instances(objects, claim.spec.requirements, label):
        try:
            capacity, allocatable = _amounts(instance, node_class)
        except UnknownAmountsError as unknown:
            objects.notes.append(f"{label}: {instance.name}: {unknown}")
            continue
        except InputError as error:
            objects.faults += place.locate_all(error.faults)
            return
        if over := [each for each, limit in limits.items() if capacity.get(each, ZERO) > limit]:
            objects.notes.append(f"{label}: {instance.name} has more {over[0]} than the pool's limit")
            continue
        labels = {**single, **claim.metadata.labels, **instance.labels()}
        made.append(f"{name}-{instance.name.replace('.', '-')}")
        yield PlannedNode(
            node=node_object(made[-1], labels, claim.spec.taints, capacity, allocatable),
            shape=_shape(instance.name),
            configuration=node_class.spec.kubelet,
            location=location,
            source=source,
        )
    if made:
        objects.notes.append(
            f"{label}: nodes that do not exist yet: {', '.join(made)}; allocatable as Karpenter computes it for "
            f"{node_class.family}: memory without 7.5 % for the hypervisor, kubeReserved by pods and CPUs"
        )


def _class_of(
    objects: PlannedObjects, reference: NodeClassReference, label: str
) -> tuple[EC2NodeClass | None, ObjectLocation | None]:
    """The node class and where it stands; None, with a note, if it is not known."""
    for each, place, _ in objects.of_kind(EC2NodeClass):
        if (reference.kind, reference.name) == ("EC2NodeClass", each.metadata.name):
            return each, place
    why = "is not among the files" if reference.kind == "EC2NodeClass" else "has no known formula"
    objects.notes.append(f"{label}: {reference.kind} {reference.name} {why}, so its nodes are not known")
    return None, None


def _instances(objects: PlannedObjects, requirements: Sequence[Requirement], label: str) -> list[Instance]:
    """The machines that the requirements allow, as far as they or the catalogue say what these are."""
    if names := ", ".join(each.key for each in requirements if _is_open(each)):
        objects.notes.append(f"{label}: labels with several possible values are left out: {names}")
    named = next((each.values for each in requirements if (each.key, each.operator) == (_TYPE, "In")), ())
    known = [
        instance
        for name in named or real_machines()
        if (instance := _catalogued(name)) is not None and _allowed(instance, requirements)
    ]
    unknown = [name for name in named if _catalogued(name) is None]
    described = _described(requirements, unknown[0] if len(unknown) == 1 else "")
    if described is not None and (len(unknown) == 1 or not named):
        return [*known, described] if named else [described]
    if unknown:
        objects.notes.append(f"{label}: not in the catalogue, so not judged: {', '.join(unknown)}")
    if not named:
        names = ", ".join(instance.name for instance in known) or "none"
        objects.notes.append(
            f"{label}: its requirements name no instance type; of the catalogue they allow {names}"
        )
    facts = {key for instance in known for key in instance.labels()}
    unchecked = {each.key for each in requirements if each.key.startswith(_AWS)} - facts
    if known and unchecked:
        objects.notes.append(f"{label}: not checked: {', '.join(sorted(unchecked))}")
    return known


def _shape(name: str) -> str:
    return name if catalogue_machine(name) is not None else ""


def _is_single(requirement: Requirement) -> bool:
    return requirement.operator == "In" and len(requirement.values) == 1


def _is_open(requirement: Requirement) -> bool:
    """Whether the pods decide about a label that is none of the instance type."""
    return requirement.key != _TYPE and not requirement.key.startswith(_AWS) and not _is_single(requirement)


def _catalogued(name: str) -> Instance | None:
    machine = catalogue_machine(name)
    if machine is None or machine.entry is None or not _EC2_NAME.fullmatch(name):
        return None
    return Instance(
        name=name,
        cpus=machine.machine.num_cores,
        memory_mib=machine.machine.memory_capacity // _MIB,
        architecture=machine.architecture,
        devices={resource: len(devices) for resource, devices in machine.devices.items()},
        address_pods=machine.entry.address_pods or None,
    )


def _described(requirements: Sequence[Requirement], name: str) -> Instance | None:
    """The machine whose CPUs and memory the requirements give; None if they leave a choice."""
    single = {each.key: each.values[0] for each in requirements if _is_single(each)}
    cpus, memory, gpus = (single.get(f"{_AWS}{field}", "") for field in ("cpu", "memory", "gpu-count"))
    cpu_count, memory_mib = number_of(cpus), number_of(memory)
    if not (cpu_count and memory_mib and cpu_count <= _MAX_CPUS and memory_mib <= _MAX_MIB):
        return None
    maker = _GPUS.get(single.get(f"{_AWS}gpu-manufacturer", ""))
    return Instance(
        name=name or f"{cpu_count}cpu-{memory_mib}mi",
        cpus=cpu_count,
        memory_mib=memory_mib,
        architecture=single.get(_ARCHITECTURE, "amd64"),
        devices={maker: number} if maker and (number := number_of(gpus)) else {},
    )


def _allowed(instance: Instance, requirements: Sequence[Requirement]) -> bool:
    labels = instance.labels()
    is_without = {f"{_AWS}gpu-count", f"{_AWS}gpu-manufacturer"} - labels.keys()
    return all(
        each.operator in ("NotIn", "DoesNotExist")
        if each.key in is_without
        else each.key not in labels or each.allows(labels[each.key])
        for each in requirements
    )


def _amounts(instance: Instance, node_class: EC2NodeClass) -> tuple[ResourceList, ResourceList]:
    """Capacity and allocatable of an instance.

    Follows: karpenter-provider-aws v1.9, pkg/providers/instancetype/types.go: computeCapacity, kubeReservedResources,
        evictionThreshold; pkg/providers/amifamily: FeatureFlags, DefaultBlockDeviceMappings.
    Departs: elastic network interfaces, EFA and branch interfaces are not counted; no ENI is reserved.
    Errors:  UnknownAmountsError with what is not known; InputError for faults of the node class.
    """
    family = node_class.family
    if family not in _FAMILIES.values():
        raise UnknownAmountsError(f"what an image of the family {family or 'Custom'} reserves is not known")
    is_bottlerocket = family == "Bottlerocket"
    kubelet = _reservations(node_class.spec.kubelet)
    pods, reserved_for = _pod_counts(instance, kubelet, is_bottlerocket=is_bottlerocket)
    memory = (instance.memory_mib - 64 * (instance.architecture == "arm64")) * _MIB
    memory -= ceil(memory * _VM_SHARE / _MIB) * _MIB
    amounts = {CPU: instance.cpus, MEMORY: memory, PODS: pods, **instance.devices}
    if node_class.spec.instance_store_policy != "RAID0":
        amounts[EPHEMERAL_STORAGE] = _disk_bytes(
            node_class.spec, "/dev/xvdb" if is_bottlerocket else "/dev/xvda"
        )
    capacity = {name: _amount(name, amount) for name, amount in amounts.items()}
    kube = {
        CPU: Quantity.of_milli(_reserved_milli(instance.cpus * 1000)),
        MEMORY: Quantity.of((11 * reserved_for + 255) * _MIB),
        EPHEMERAL_STORAGE: Quantity.of(_GIB),
        **kubelet.kube_reserved,
    }
    evicted = {
        MEMORY: _threshold(kubelet, "memory.available", "100Mi", memory),
        EPHEMERAL_STORAGE: _threshold(kubelet, "nodefs.available", "10%", amounts.get(EPHEMERAL_STORAGE, 0)),
    }
    overheads = (kube, kubelet.system_reserved, evicted)
    allocatable = {
        name: amount - sum((each.get(name, ZERO) for each in overheads), ZERO)
        for name, amount in capacity.items()
    }
    return capacity, allocatable


def _reservations(configuration: Mapping[str, Any]) -> Reservations:
    """What the kubelet of a class reserves.

    Errors: InputError for wrong types and negative amounts.
    """
    try:
        kubelet = decode(configuration, Reservations)
    except msgspec.ValidationError as error:
        fault = decoding_fault(error)
        raise InputError([replace(fault, path=f"spec.kubelet.{fault.path}")]) from None
    reserved = {"kubeReserved": kubelet.kube_reserved, "systemReserved": kubelet.system_reserved}
    faults = [
        Fault(path=f"spec.kubelet.{field}[{name}]", value=str(amount), rule="must not be negative")
        for field, amounts in reserved.items()
        for name, amount in amounts.items()
        if amount < ZERO
    ]
    if faults:
        raise InputError(faults)
    return kubelet


def _pod_counts(instance: Instance, kubelet: Reservations, *, is_bottlerocket: bool) -> tuple[int, int]:
    """The most pods of the node, and the number of pods that memory is reserved for.

    Errors: UnknownAmountsError without the addresses of the instance, where they count.
    """
    pods = instance.address_pods if kubelet.max_pods is None else kubelet.max_pods
    if pods is None:
        unknown = "for how many pods it has addresses is not known; spec.kubelet.maxPods of its class tells"
        raise UnknownAmountsError(unknown)
    if kubelet.pods_per_core and not is_bottlerocket:
        pods = min(pods, kubelet.pods_per_core * instance.cpus)
    reserved_for = pods if is_bottlerocket else instance.address_pods
    if reserved_for is None and MEMORY not in kubelet.kube_reserved:
        unknown = "how much memory is reserved is not known; spec.kubelet.kubeReserved of its class tells"
        raise UnknownAmountsError(unknown)
    return pods, reserved_for or 0


def _amount(name: str, amount: int) -> Quantity:
    is_bytes = name in (MEMORY, EPHEMERAL_STORAGE)
    return Quantity.of(amount, QuantityFormat.BINARY_SI if is_bytes else QuantityFormat.DECIMAL_SI)


def _reserved_milli(milli: int) -> int:
    """The CPU that the bootstrap reserves.

    Units: thousandths of a CPU.

    >>> _reserved_milli(2000), _reserved_milli(8000)
    (70, 90)
    """
    reserved, start = 0, 0
    for end, share in _CPU_SHARES:
        reserved += int(max(min(milli, end) - start, 0) * share)
        start = end
    return reserved


def _disk_bytes(spec: NodeClassSpec, device: str) -> int:
    mappings = sorted(spec.block_device_mappings, key=lambda each: not each.root_volume)
    sizes = [each.ebs.volume_size for each in mappings if each.root_volume or each.device_name == device]
    return next((size.value() for size in sizes if size is not None), 20 * _GIB)


def _threshold(kubelet: Reservations, signal: str, default: str, total: int) -> Quantity:
    """The amount below which the kubelet evicts: bytes, or a percentage of the capacity."""
    text = kubelet.eviction_hard.get(signal, default)
    try:
        if not text.endswith("%"):
            return Quantity.parse(text)
        percentage = plain_float(text.rstrip("%"))
        if not 0 <= percentage <= 100:
            raise ValueError("must be 0% to 100%")  # noqa: TRY301 - as any other wrong percentage
    except (QuantityError, ValueError) as error:
        path = f"spec.kubelet.evictionHard[{signal}]"
        raise InputError([Fault(path=path, value=text, rule=str(error))]) from None
    return Quantity.of(0 if percentage == 100 else ceil(total / 100 * percentage))
