"""OpenShift's PerformanceProfile: the KubeletConfig and the kernel arguments that its operator renders from it."""

from collections.abc import Iterator, Mapping
from json import JSONDecodeError, loads
from typing import Any

from nodewright.model.errors import Fault, InputError
from nodewright.model.values.idset import CPUSet, IdSetError
from nodewright.model.values.quantity import Quantity, QuantityError

_SNIPPET = "kubeletconfig.experimental"
_ON_NUMA_NODES = ("restricted", "single-numa-node")
_POLICIES = ("none", "best-effort", *_ON_NUMA_NODES)
_PAGE_SIZES = ("4k", "64k", "2M", "16M", "32M", "512M", "1G", "16G")
_EVICTION_HARD = {
    "memory.available": "100Mi",
    "nodefs.available": "10%",
    "imagefs.available": "15%",
    "nodefs.inodesFree": "5%",
}
_RESERVED_MEMORY = {"memory": "500Mi"}


class _Profile:
    """The fields of a profile, with the faults found so far."""

    def __init__(self, value: Mapping[str, Any], source: str) -> None:
        self.source = source
        self.faults: list[Fault] = []
        meta = value.get("metadata")
        self.annotations = self.mapping(meta if isinstance(meta, dict) else {}, "annotations", "metadata.")
        self.spec = self.mapping(value, "spec", "")
        self.cpu = self.mapping(self.spec, "cpu")
        self.hints = self.mapping(self.spec, "workloadHints")

    def fault(self, rule: str, path: str, value: object = None) -> None:
        self.faults.append(Fault(rule=rule, path=path, value=value, source=self.source))

    def mapping(self, holder: Mapping[str, Any], name: str, prefix: str = "spec.") -> dict[str, Any]:
        """The object in a field; empty if it is absent."""
        value = holder.get(name)
        if value is not None and not isinstance(value, dict):
            self.fault("must be an object", f"{prefix}{name}", value)
        return value if isinstance(value, dict) else {}

    def items(self, holder: Mapping[str, Any], name: str, prefix: str) -> list[Any]:
        """The list in a field; empty if it is absent."""
        value = holder.get(name)
        if value is not None and not isinstance(value, list):
            self.fault("must be a list", f"{prefix}{name}", value)
        return value if isinstance(value, list) else []

    def cpus(self, name: str, *, is_required: bool = False) -> CPUSet:
        """The CPUs in a field of `spec.cpu`."""
        value, path = self.cpu.get(name), f"spec.cpu.{name}"
        if value is None:
            if is_required:
                self.fault("must be set: a list of CPUs such as 0-3,8", path)
            return CPUSet()
        try:
            return CPUSet.parse(str(value))
        except IdSetError as error:
            self.fault(str(error), path, value)
            return CPUSet()


def rendered_kubelet_config(value: Mapping[str, Any], source: str) -> tuple[dict[str, Any], tuple[str, ...]]:
    """The fields of the KubeletConfig that the Node Tuning Operator renders, and the kernel arguments.

    Follows: cluster-node-tuning-operator 5.2, pkg/performanceprofile/controller/performanceprofile/components:
        kubeletconfig/kubeletconfig.go, New; tuned/tuned.go, NewNodePerformance, with
        assets/performanceprofile/tuned/openshift-node-performance; pkg/apis/performanceprofile/v2, validation.
    Departs: mixed CPUs count as enabled where the profile asks for them; the operator has a feature gate for it.
    Errors:  InputError with all faults of the profile.
    """
    profile = _Profile(value, source)
    reserved, isolated = (
        profile.cpus("reserved", is_required=True),
        profile.cpus("isolated", is_required=True),
    )
    others = {name: profile.cpus(name) for name in ("shared", "ovsDpdk", "offlined")}
    sets = {"reserved": reserved, "isolated": isolated, **others}
    for number, (name, cpus) in enumerate(sets.items()):
        for other, other_cpus in [*sets.items()][number + 1 :]:
            if not cpus.isdisjoint(other_cpus):
                profile.fault(
                    f"has CPUs of {name}: {cpus & other_cpus}", f"spec.cpu.{other}", str(other_cpus)
                )
    if profile.hints.get("mixedCpus") is True:
        reserved |= others["shared"]
    document = _managers(profile, _snippet(profile), reserved | others["ovsDpdk"])
    arguments = tuple(_kernel_arguments(profile, isolated | others["ovsDpdk"], sets))
    if profile.faults:
        raise InputError(profile.faults)
    return document, arguments


def _snippet(profile: _Profile) -> dict[str, Any]:
    """The configuration in the annotation, below what the operator sets."""
    written = profile.annotations.get(_SNIPPET)
    if written is None:
        return {}
    try:
        snippet = loads(str(written))
    except (JSONDecodeError, RecursionError):
        snippet = None
    maps = ("evictionHard", "kubeReserved", "systemReserved", "cpuManagerPolicyOptions")
    if not isinstance(snippet, dict) or not all(isinstance(snippet.get(name) or {}, dict) for name in maps):
        rule = "must be a KubeletConfiguration as JSON"
        profile.fault(rule, f"metadata.annotations[{_SNIPPET}]", written)
        return {}
    return {name: item for name, item in snippet.items() if name not in ("apiVersion", "kind")}


def _managers(profile: _Profile, snippet: dict[str, Any], reserved: CPUSet) -> dict[str, Any]:
    """The fields of the kubelet's managers and of reserved amounts."""
    numa = profile.mapping(profile.spec, "numa")
    policy = numa.get("topologyPolicy") or "best-effort"
    if policy not in _POLICIES:
        profile.fault(f"must be one of {', '.join(_POLICIES)}", "spec.numa.topologyPolicy", policy)
    document = {
        **snippet,
        "cpuManagerPolicy": "static",
        "cpuManagerReconcilePeriod": "5s",
        "topologyManagerPolicy": policy,
        "evictionHard": {**_EVICTION_HARD, **(snippet.get("evictionHard") or {})},
        "kubeReserved": {**_RESERVED_MEMORY, **(snippet.get("kubeReserved") or {})},
        "systemReserved": {**_RESERVED_MEMORY, **(snippet.get("systemReserved") or {})},
        "reservedSystemCPUs": str(reserved),
    }
    if policy in _ON_NUMA_NODES:
        document["memoryManagerPolicy"] = "Static"
        if snippet.get("reservedMemory") is None:
            limits = {"memory": _reserved_memory(profile, document)}
            document["reservedMemory"] = [{"numaNode": 0, "limits": limits}]
    if policy == "single-numa-node":
        options = snippet.get("cpuManagerPolicyOptions") or {}
        document["cpuManagerPolicyOptions"] = {"full-pcpus-only": "true", **options}
    return document


def _reserved_memory(profile: _Profile, document: Mapping[str, Any]) -> str:
    total = Quantity.of(0)
    for field, name in (
        ("kubeReserved", "memory"),
        ("systemReserved", "memory"),
        ("evictionHard", "memory.available"),
    ):
        amount = document[field][name]
        try:
            total += Quantity.parse(str(amount))
        except QuantityError as error:
            profile.fault(str(error), f"metadata.annotations[{_SNIPPET}]: {field}[{name}]", amount)
    return str(total)


def _kernel_arguments(profile: _Profile, isolated: CPUSet, sets: Mapping[str, CPUSet]) -> Iterator[str]:
    """The kernel arguments that do not depend on the processor."""
    is_static = profile.cpu.get("balanceIsolated") is False
    yield from ("nohz=on", f"rcu_nocbs={isolated}", f"nohz_full={isolated}", "skew_tick=1")
    yield f"isolcpus={'domain,' if is_static else ''}managed_irq,{isolated}"
    if profile.hints.get("realTime") is not False:
        yield from ("nosoftlockup", "rcutree.kthread_prio=11")
    yield from _huge_pages(profile)
    if sets["ovsDpdk"]:
        yield f"irqaffinity={sets['reserved'] | sets['isolated'] | sets['shared']}"
    yield from map(str, profile.items(profile.spec, "additionalKernelArgs", "spec."))


def _huge_pages(profile: _Profile) -> Iterator[str]:
    """The arguments for huge pages; those of a single NUMA node are allocated after the boot."""
    huge_pages = profile.mapping(profile.spec, "hugepages")
    default, path = huge_pages.get("defaultHugepagesSize"), "spec.hugepages."
    pages = profile.items(huge_pages, "pages", path)
    if default is not None and default not in _PAGE_SIZES:
        profile.fault(f"must be one of {', '.join(_PAGE_SIZES)}", f"{path}defaultHugepagesSize", default)
    if pages and default is None:
        profile.fault("must be set if there are pages", f"{path}defaultHugepagesSize")
    if default is not None:
        yield f"default_hugepagesz={default}"
    on_numa_node = set()
    for index, page in enumerate(pages):
        size, count = (page.get("size"), page.get("count", 0)) if isinstance(page, dict) else (None, 0)
        if size not in _PAGE_SIZES or not isinstance(count, int) or isinstance(count, bool) or count < 0:
            rule = f"must have a size ({', '.join(_PAGE_SIZES)}) and a count"
            profile.fault(rule, f"{path}pages[{index}]", page)
        elif page.get("node") is not None:
            on_numa_node.add(size)
        else:
            yield from (f"hugepagesz={size}", f"hugepages={count}")
    plain = {page.get("size") for page in pages if isinstance(page, dict) and page.get("node") is None}
    if "2M" in on_numa_node - plain and default == "1G":
        yield from ("hugepagesz=2M", "hugepages=0")
