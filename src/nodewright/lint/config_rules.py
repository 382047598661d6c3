"""Rules about KubeletConfigurations: eviction, reservations and values that mean something else than they say."""

from collections.abc import Iterator

from msgspec.structs import fields

from nodewright.core.topology.policy import topology_manager
from nodewright.lint.findings import Edit, Found, Rule, Severity
from nodewright.lint.subjects import Around, ConfigSubject
from nodewright.model.kubelet_config import KubeletConfiguration
from nodewright.model.resource_names import CPU, MEMORY
from nodewright.model.thresholds import DEFAULT_EVICTION_HARD, Signal
from nodewright.model.verdict import Granted
from nodewright.values.duration import Duration
from nodewright.values.quantity import ZERO, Format, Quantity

_NAMES = {field.encode_name: field.name for field in fields(KubeletConfiguration)}
_ZEROS = (0, "0", "0s", "0m", "0h")
_OFF = ("0%", "100%")
_DERIVED = (Signal.CONTAINERFS_AVAILABLE, Signal.CONTAINERFS_INODES_FREE)


def _thresholds_dropped(config: ConfigSubject, _around: Around) -> Iterator[Found]:
    """`evictionHard` takes the place of all defaults, even when it is empty."""
    written = config.document.get("evictionHard")
    if not isinstance(written, dict) or config.config.merge_default_eviction_settings:
        return
    missing = [name for name in DEFAULT_EVICTION_HARD if name not in written]
    if missing:
        edit = Edit(f"{config.prefix}mergeDefaultEvictionSettings", value=True)
        facts = {"missing": ", ".join(missing)}
        yield Found(path=f"{config.prefix}evictionHard", facts=facts, edits=(edit,))


def _zeros(config: ConfigSubject, _around: Around) -> Iterator[Found]:
    """Zeros that the kubelet cannot tell from nothing."""
    for name, written in config.document.items():
        own = _NAMES.get(name)
        if own is None or isinstance(written, bool) or written not in _ZEROS:
            continue
        meant = getattr(config.config, own)
        if meant and isinstance(meant, int | Duration):
            path = config.prefix + name
            facts = {"field": name, "written": written, "meant": str(meant)}
            yield Found(path=path, facts=facts, edits=(Edit(path),))


def _no_grace(config: ConfigSubject, _around: Around) -> Iterator[Found]:
    """Soft eviction leaves pods no time, unless a maximum is set."""
    kubelet = config.config
    if kubelet.eviction_soft and not kubelet.eviction_max_pod_grace_period:
        path = f"{config.prefix}evictionMaxPodGracePeriod"
        facts = {"signals": ", ".join(sorted(kubelet.eviction_soft))}
        yield Found(path=f"{config.prefix}evictionSoft", facts=facts, edits=(Edit(path, 60),))


def _overwritten(config: ConfigSubject, _around: Around) -> Iterator[Found]:
    """Thresholds on containerfs are worked out from those on the other file systems."""
    for field, written in _eviction(config):
        for name in written:
            if name in _DERIVED:
                path = f"{config.prefix}{field}[{name}]"
                yield Found(path=path, facts={"signal": name}, edits=(Edit(path),))


def _switched_off(config: ConfigSubject, _around: Around) -> Iterator[Found]:
    """0 % and 100 % switch a threshold off."""
    for field, written in _eviction(config):
        for name, value in written.items():
            if value in _OFF:
                path = f"{config.prefix}{field}[{name}]"
                yield Found(path=path, facts={"signal": name, "value": value})


def _eviction(config: ConfigSubject) -> Iterator[tuple[str, dict[str, object]]]:
    for field in ("evictionHard", "evictionSoft"):
        written = config.document.get(field)
        if isinstance(written, dict):
            yield field, written


def _cgroup_v1(config: ConfigSubject, _around: Around) -> Iterator[Found]:
    """Version 1 of cgroups is on its way out."""
    written = config.document.get("failCgroupV1")
    if written is False:
        path = f"{config.prefix}failCgroupV1"
        yield Found(path=path, edits=(Edit(path),))


def _memory_qos(config: ConfigSubject, _around: Around) -> Iterator[Found]:
    """The gate alone protects nobody's memory any more."""
    if config.settled.gates["MemoryQoS"] and config.config.memory_reservation_policy == "None":
        edit = Edit(f"{config.prefix}memoryReservationPolicy", "TieredReservation")
        yield Found(path=f"{config.prefix}featureGates[MemoryQoS]", edits=(edit,))


def _cpus_reserved_twice(config: ConfigSubject, _around: Around) -> Iterator[Found]:
    """`reservedSystemCPUs` takes the place of the cpu entries of both reservations."""
    if not config.config.reserved_system_cpus:
        return
    for field, amounts in (
        ("kubeReserved", config.config.kube_reserved),
        ("systemReserved", config.config.system_reserved),
    ):
        if amounts.get(CPU, "0") != "0":
            path = f"{config.prefix}{field}[{CPU}]"
            facts = {"field": field, "amount": amounts[CPU], "cpus": config.config.reserved_system_cpus}
            yield Found(path=path, facts=facts, edits=(Edit(path),))


def _swap(config: ConfigSubject, _around: Around) -> Iterator[Found]:
    """Swap for pods on a kubelet that does not start where there is swap."""
    kubelet = config.config
    if kubelet.memory_swap.swap_behavior == "LimitedSwap" and kubelet.fail_swap_on:
        edit = Edit(f"{config.prefix}failSwapOn", value=False)
        yield Found(path=f"{config.prefix}memorySwap", edits=(edit,))


def _relative_threshold(config: ConfigSubject, _around: Around) -> Iterator[Found]:
    """`reservedMemory` has to be exact to the byte, and a percentage is another amount on each machine."""
    value = config.config.eviction_hard.get(Signal.MEMORY_AVAILABLE, "")
    if config.is_static_memory and value.endswith("%") and value not in _OFF:
        path = f"{config.prefix}evictionHard[{Signal.MEMORY_AVAILABLE}]"
        yield Found(path=path, facts={"value": value}, edits=(Edit(path, is_open=True),))


def _devices_alone(config: ConfigSubject, _around: Around) -> Iterator[Found]:
    """A topology policy with neither CPUs nor memory to align."""
    kubelet = config.config
    if kubelet.topology_manager_policy in ("restricted", "single-numa-node", "best-effort") and not (
        config.is_static_cpu or config.is_static_memory
    ):
        edit = Edit(f"{config.prefix}cpuManagerPolicy", "static")
        facts = {"policy": kubelet.topology_manager_policy}
        yield Found(path=f"{config.prefix}topologyManagerPolicy", facts=facts, edits=(edit,))


def _over_reserved(config: ConfigSubject, _around: Around) -> Iterator[Found]:
    """More is reserved than the machine has."""
    for one in config.resources.over_reserved if config.resources else ():
        facts = {"resource": one.resource, "reserved": str(one.reservation), "capacity": str(one.capacity)}
        yield Found(path=f"{config.prefix}kubeReserved", facts=facts)


def _irregular_cores(config: ConfigSubject, _around: Around) -> Iterator[Found]:
    """Cores of different numbers of threads, which the static policy takes for equal."""
    if config.machine is None or not config.is_static_cpu:
        return
    threads = {len(core.thread_ids) for node in config.machine.topology for core in node.cores}
    if len(threads) > 1:
        facts = {"threads": " and ".join(map(str, sorted(threads)))}
        yield Found(path=f"{config.prefix}cpuManagerPolicy", facts=facts)


def _distances_unlisted(config: ConfigSubject, _around: Around) -> Iterator[Found]:
    """Distances are looked up by node id; holes in the ids lead beyond the end of the lists."""
    if config.machine is None:
        return
    made = topology_manager(
        config.config.topology_manager_policy,
        config.config.topology_manager_scope,
        config.config.topology_manager_policy_options,
        config.machine.topology,
    )
    if isinstance(made, Granted) and made.value.unlisted:
        first = made.value.unlisted[0]
        facts = {"numa": first.numa, "other": first.other, "listed": first.listed}
        path = f"{config.prefix}topologyManagerPolicyOptions[prefer-closest-numa-nodes]"
        yield Found(path=path, facts=facts, edits=(Edit(path),))


def _beyond_a_numa_node(config: ConfigSubject, _around: Around) -> Iterator[Found]:
    """Reserving more memory of a NUMA node than it has makes the rest an enormous number."""
    if config.machine is None or not config.is_static_memory:
        return
    memory = {
        node.node_id: node.memory - sum(pages.page_size * pages.num_pages for pages in node.hugepages) * 1024
        for node in config.machine.topology
    }
    for index, entry in enumerate(config.config.reserved_memory):
        reserved, has = entry.limits.get(MEMORY, ZERO), memory.get(entry.numa_node)
        if has is not None and reserved.value() > has:
            path = f"{config.prefix}reservedMemory[{index}].limits[{MEMORY}]"
            left = Quantity.of(has, Format.BINARY_SI).canonical()
            facts = {"numa": entry.numa_node, "reserved": reserved.canonical(), "has": left}
            yield Found(path=path, facts=facts)


CONFIG_RULES = (
    Rule("NW309", Severity.WARNING, (ConfigSubject,), _thresholds_dropped),
    Rule("NW310", Severity.WARNING, (ConfigSubject,), _zeros),
    Rule("NW311", Severity.WARNING, (ConfigSubject,), _no_grace),
    Rule("NW312", Severity.WARNING, (ConfigSubject,), _overwritten),
    Rule("NW313", Severity.INFO, (ConfigSubject,), _switched_off),
    Rule("NW314", Severity.WARNING, (ConfigSubject,), _cgroup_v1),
    Rule("NW315", Severity.WARNING, (ConfigSubject,), _memory_qos),
    Rule("NW316", Severity.WARNING, (ConfigSubject,), _cpus_reserved_twice),
    Rule("NW317", Severity.WARNING, (ConfigSubject,), _swap),
    Rule("NW318", Severity.WARNING, (ConfigSubject,), _relative_threshold),
    Rule("NW319", Severity.INFO, (ConfigSubject,), _devices_alone),
    Rule("NW320", Severity.ERROR, (ConfigSubject,), _over_reserved),
    Rule("NW321", Severity.WARNING, (ConfigSubject,), _irregular_cores),
    Rule("NW322", Severity.WARNING, (ConfigSubject,), _distances_unlisted),
    Rule("NW323", Severity.ERROR, (ConfigSubject,), _beyond_a_numa_node),
)
