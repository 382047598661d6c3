"""The launcher pod that KubeVirt makes for a virtual machine: guest, devices and the memory of what runs beside the guest.

Follows: KubeVirt v1.9, pkg/virt-controller/services/template.go, renderLaunchManifest, VMIResourcePredicates;
    renderresources.go; pkg/hypervisor/kvm/hypervisorbackend.go, GetMemoryOverhead; pkg/defaults/defaults.go;
    pkg/container-disk/container-disk.go; serialconsolelog.go.
Departs: the settings of the KubeVirt object are its defaults (CPU allocation ratio 10, no overcommit, no resources of
    support containers); labels that virt-handler gives nodes are not selected; network bindings, hook sidecars,
    virtiofs and limits that follow from quotas of the namespace are not there.
"""

from collections.abc import Iterator, Mapping
from typing import Any

from msgspec.structs import replace

from nodewright.model.errors import Fault, InputError
from nodewright.model.values.quantity import Quantity, QuantityError, QuantityFormat

_MIB = 1 << 20
_PROCESSES_MIB = 25 + 100 + 25 + 40 + 50
"""Launcher and monitor, virtlogd, virtqemud, and QEMU without its guest."""
_ALLOCATION_RATIO = 10
_DISK_BYTES = 50_000_000
_DEVICES = "devices.kubevirt.io/"
_POD_FIELDS = (
    "nodeSelector",
    "affinity",
    "tolerations",
    "topologySpreadConstraints",
    "priorityClassName",
    "schedulerName",
    "resourceClaims",
)
_PARITY = "alpha.kubevirt.io/EmulatorThreadCompleteToEvenParity"
_Amounts = dict[str, Quantity]


class _Machine:
    """The spec of an instance, with the defaults of KubeVirt's webhooks."""

    def __init__(self, spec: Mapping[str, Any], annotations: Mapping[str, Any]) -> None:
        self.faults: list[Fault] = []
        self.spec, self.annotations = spec, annotations
        self.domain = self.part(spec, "domain", "")
        self.devices, self.cpu = self.part(self.domain, "devices"), self.part(self.domain, "cpu")
        self.memory, resources = self.part(self.domain, "memory"), self.part(self.domain, "resources")
        self.requests, self.limits = self._amounts(resources, "requests"), self._amounts(resources, "limits")
        self.overcommits_overhead = resources.get("overcommitGuestOverhead") is True
        self.written_request = self.requests.get("memory", Quantity.of(0))
        self.is_dedicated = self.cpu.get("dedicatedCpuPlacement") is True
        self.is_guaranteed = self.is_dedicated or self._wants_guaranteed()
        self.page_size = self.part(self.memory, "hugepages", "domain.memory.").get("pageSize")
        self.guest = self._guest()
        self.vcpus = self._vcpus()
        self.io_threads = self._count(
            self.part(self.domain, "ioThreads"), "supplementalPoolThreadCount", "ioThreads"
        )

    def part(self, holder: Mapping[str, Any], name: str, prefix: str = "domain.") -> dict[str, Any]:
        value = holder.get(name)
        if value is not None and not isinstance(value, dict):
            self.faults.append(Fault(path=f"{prefix}{name}", value=value, rule="must be an object"))
        return value if isinstance(value, dict) else {}

    def items(self, holder: Mapping[str, Any], name: str, prefix: str) -> list[dict[str, Any]]:
        value = holder.get(name)
        if value is not None and not (
            isinstance(value, list) and all(isinstance(item, dict) for item in value)
        ):
            self.faults.append(Fault(path=f"{prefix}{name}", value=value, rule="must be a list of objects"))
            return []
        return value or []

    def _amounts(self, resources: Mapping[str, Any], name: str) -> _Amounts:
        path, amounts = f"domain.resources.{name}", _Amounts()
        for resource, value in self.part(resources, name, "domain.resources.").items():
            if (amount := self._quantity(value, f"{path}[{resource}]")) is not None:
                amounts[resource] = amount
        return amounts

    def _quantity(self, value: Any, path: str) -> Quantity | None:
        try:
            amount = Quantity.parse(str(value))
        except QuantityError as error:
            self.faults.append(Fault(path=path, value=value, rule=str(error)))
            return None
        if amount.sign() < 0:
            self.faults.append(Fault(path=path, value=value, rule="must be greater than or equal to 0"))
        return amount

    def _count(self, holder: Mapping[str, Any], name: str, path: str) -> int:
        value = holder.get(name)
        if value is None:
            return 0
        if not isinstance(value, int) or isinstance(value, bool) or not 0 <= value <= 4096:
            self.faults.append(Fault(path=f"domain.{path}.{name}", value=value, rule="must be 0 to 4096"))
            return 0
        return value

    def _wants_guaranteed(self) -> bool:
        zero = Quantity.of(0)
        request, limit = self.written_request, self.limits.get("memory", zero)
        cpu = self.requests.get("cpu", zero)
        has_memory = request == limit if request != zero else limit != zero
        return has_memory and cpu != zero and cpu == self.limits.get("cpu")

    def _guest(self) -> Quantity | None:
        for value, path in (
            (self.memory.get("guest"), "domain.memory.guest"),
            (self.requests.get("memory"), ""),
            (self.limits.get("memory"), ""),
            (self.page_size, "domain.memory.hugepages.pageSize"),
        ):
            if value is not None:
                return self._quantity(value, path)
        return None

    def _vcpus(self) -> int:
        counts = [self._count(self.cpu, name, "cpu") for name in ("sockets", "cores", "threads")]
        if any(counts):
            product = 1
            for count in filter(None, counts):
                product *= count
            return product
        amount = self.limits.get("cpu") or self.requests.get("cpu")
        return max(amount.value() if amount else 1, 1)


def launcher_template(part: Mapping[str, Any], value: Mapping[str, Any]) -> dict[str, Any] | str:
    """The pod template of the launcher of a virtual machine's template, or of an instance; why there is none.

    ``part``: the spec of an instance, or metadata and spec of the template in ``value``.
    Errors: InputError with all faults of the instance.
    """
    is_instance = part is value.get("spec")
    holder, spec = (value, part) if is_instance else (part, part.get("spec"))
    own = value["spec"]
    pooled = own.get("virtualMachineTemplate")
    specs = (own, pooled.get("spec") if isinstance(pooled, dict) else None)
    for each in specs:
        if isinstance(each, dict) and (reference := each.get("instancetype")):
            named = reference.get("name") if isinstance(reference, dict) else None
            which = (
                f"the instance type {named}, which is not among the files" if named else "an instance type"
            )
            return f"its CPUs and memory are those of {which}, so its pod is not judged"
    meta = holder.get("metadata")
    meta = meta if isinstance(meta, dict) else {}
    annotations = meta.get("annotations")
    machine = _Machine(
        spec if isinstance(spec, dict) else {}, annotations if isinstance(annotations, dict) else {}
    )
    limits, requests = _compute(machine)
    support = [*_support_containers(machine)]
    volumes = machine.items(machine.spec, "volumes", "")
    if machine.faults:
        prefix = "" if is_instance else "spec."
        raise InputError([replace(fault, path=f"{prefix}{fault.path}") for fault in machine.faults])
    compute = {"name": "compute", "image": "virt-launcher", "resources": _written(requests, limits)}
    disks = [
        {**container, "name": f"volume{volume.get('name')}"}
        for volume in volumes
        if "containerDisk" in volume
        for container in (_support(machine, (1, 1), (10, 40), _DISK_BYTES),)
    ]
    pod = {name: machine.spec[name] for name in _POD_FIELDS if name in machine.spec}
    pod |= {"restartPolicy": "Never", "containers": [compute, *disks], "initContainers": support}
    pod["terminationGracePeriodSeconds"] = _grace_period_s(machine)
    labels = meta.get("labels") if isinstance(meta.get("labels"), dict) else {}
    return {"metadata": {"labels": labels, "annotations": machine.annotations}, "spec": pod}


def _grace_period_s(machine: _Machine) -> int:
    """What the guest has, and twice the time that virt-handler and the launcher need."""
    value = machine.spec.get("terminationGracePeriodSeconds")
    return (value if isinstance(value, int) else 30) + 30


def _written(requests: _Amounts, limits: _Amounts) -> dict[str, Any]:
    sides = {"requests": requests, "limits": limits}
    return {side: {name: str(amount) for name, amount in amounts.items()} for side, amounts in sides.items()}


def _compute(machine: _Machine) -> tuple[_Amounts, _Amounts]:
    """Limits and requests of the container with the guest."""
    limits, requests = dict(machine.limits), dict(machine.requests)
    storage = Quantity.of(_DISK_BYTES)
    requests["ephemeral-storage"] = requests.get("ephemeral-storage", Quantity.of(0)) + storage
    if "ephemeral-storage" in limits:
        limits["ephemeral-storage"] += storage
    memory = requests.get("memory") or limits.get("memory") or machine.guest
    if memory is not None:
        requests["memory"] = memory
    if machine.is_dedicated:
        emulator = 1 if machine.cpu.get("isolateEmulatorThread") is True else 0
        cpus = machine.vcpus + machine.io_threads
        if emulator and _PARITY in machine.annotations and cpus % 2 == 0:
            emulator = 2
        requests["cpu"] = limits["cpu"] = Quantity.of(cpus + emulator)
        if "memory" in requests:
            limits["memory"] = requests["memory"]
    elif "cpu" not in requests:
        milli = (machine.vcpus + machine.io_threads) * 1000 // _ALLOCATION_RATIO
        requests["cpu"] = machine.limits.get("cpu") or Quantity.of_milli(milli)
    _add_overhead(machine, requests, limits)
    for name, count in _device_counts(machine).items():
        limits[name] = requests[name] = Quantity.of(count)
    return limits, requests


def _add_overhead(machine: _Machine, requests: _Amounts, limits: _Amounts) -> None:
    """Adds the memory beside the guest, whose own is in huge pages if it has some."""
    overhead = Quantity.of(memory_overhead_bytes(machine), QuantityFormat.BINARY_SI)
    zero = Quantity.of(0)
    if machine.page_size is None:
        if not machine.overcommits_overhead:
            requests["memory"] = requests.get("memory", zero) + overhead
        if "memory" in limits:
            limits["memory"] += overhead
        return
    pages = requests.get("memory", zero)
    guest = machine.guest if machine.memory.get("guest") is not None and machine.guest is not None else pages
    name = f"hugepages-{machine.page_size}"
    requests[name] = limits[name] = min(pages, guest)
    for amounts in (requests, limits):
        if "memory" in amounts or amounts is requests:
            rest = amounts.get("memory", zero) - guest
            amounts["memory"] = (rest if rest.sign() > 0 else zero) + overhead


def memory_overhead_bytes(machine: _Machine) -> int:
    """The memory of the launcher's processes for the guest, in bytes."""
    devices = machine.devices
    kilobytes = machine.written_request.scaled_value(3)
    mebibytes = _PROCESSES_MIB + 8 * machine.vcpus + 8
    interfaces = machine.items(devices, "interfaces", "domain.devices.")
    has_vfio = (
        devices.get("gpus") or devices.get("hostDevices") or any("sriov" in each for each in interfaces)
    )
    volumes = machine.items(machine.spec, "volumes", "")
    probes = [machine.part(machine.spec, name, "") for name in ("livenessProbe", "readinessProbe")]
    exec_probes = sum("exec" in probe for probe in probes)
    security = machine.part(machine.domain, "launchSecurity")
    tpm = devices.get("tpm")
    has_tpm = isinstance(tpm, dict) and tpm.get("enabled") is not False
    for applies, amount in (
        (devices.get("autoattachGraphicsDevice") is not False, 32),
        (machine.spec.get("architecture") == "arm64", 128),
        (has_vfio, 1024),
        ("downwardMetrics" in devices or any("downwardMetrics" in each for each in volumes), 1),
        (exec_probes, 100 + 10 * exec_probes),
        ("sev" in security or "snp" in security, 256),
        (has_tpm, 53),
        (machine.is_guaranteed, 100),
    ):
        mebibytes += amount if applies else 0
    return kilobytes * 1000 // 512 + mebibytes * _MIB


def _device_counts(machine: _Machine) -> dict[str, int]:
    """The devices of KubeVirt's and other plugins."""
    devices = machine.devices
    interfaces = machine.items(devices, "interfaces", "domain.devices.")
    attaches = devices.get("autoattachPodInterface") is not False
    security = machine.part(machine.domain, "launchSecurity")
    counts = {"kvm": 1}
    for name, applies in (
        ("tun", interfaces or attaches),
        (
            "vhost-net",
            any(each.get("model") in (None, "virtio") for each in interfaces) if interfaces else attaches,
        ),
        ("vhost-vsock", devices.get("autoattachVSOCK") is True),
        ("sev", "sev" in security),
        ("tdx", "tdx" in security),
    ):
        if applies:
            counts[name] = 1
    totals = {f"{_DEVICES}{name}": count for name, count in counts.items()}
    for field in ("gpus", "hostDevices"):
        for device in machine.items(devices, field, "domain.devices."):
            resource = device.get("deviceName")
            if isinstance(resource, str) and resource and "claimRequest" not in device:
                totals[resource] = totals.get(resource, 0) + 1
    return totals


def _support(
    machine: _Machine, requests: tuple[int, int], limits: tuple[int, int], storage: int = 0
) -> dict[str, Any]:
    """A container beside the guest; of a Guaranteed pod its requests are its limits.

    Units: thousandths of a CPU and megabytes; storage in bytes.
    """
    requests = limits if machine.is_guaranteed else requests
    amounts = [{"cpu": f"{cpu}m", "memory": f"{memory}M"} for cpu, memory in (requests, limits)]
    if storage:
        amounts[0]["ephemeral-storage"] = str(storage)
    return {"image": "virt-launcher", "resources": {"requests": amounts[0], "limits": amounts[1]}}


def _support_containers(machine: _Machine) -> Iterator[dict[str, Any]]:
    """The init containers: the log of the serial console, which stays, and the copy of what serves container disks."""
    devices = machine.devices
    if devices.get("autoattachSerialConsole") is not False and devices.get("logSerialConsole") is not False:
        console = _support(machine, (5, 35), (15, 60))
        yield {**console, "name": "guest-console-log", "restartPolicy": "Always"}
    volumes = machine.items(machine.spec, "volumes", "")
    disks = [volume for volume in volumes if "containerDisk" in volume]
    if disks:
        limits = (10, 40) if machine.is_guaranteed else (100, 40)
        yield {**_support(machine, (10, 1), limits), "name": "container-disk-binary"}
    for volume in disks:
        disk = _support(machine, (1, 1), (10, 40), _DISK_BYTES)
        yield {**disk, "name": f"volume{volume.get('name')}-init"}
