"""Rules about KubeletConfigurations: eviction, reservations and misleading values."""

from collections.abc import Iterator

from msgspec.structs import fields

from nodewright.engine.core.topology.manager_config import topology_manager
from nodewright.model.kubernetes.eviction_thresholds import DEFAULT_EVICTION_HARD, Signal
from nodewright.model.kubernetes.kubelet_configuration import KubeletConfiguration
from nodewright.model.kubernetes.resource_names import CPU, MEMORY
from nodewright.model.reasons.verdict import Granted
from nodewright.model.values.duration import Duration
from nodewright.model.values.quantity import ZERO, Quantity, QuantityFormat
from nodewright.predict.lint.lint_model import (
    ConfigSubject,
    FieldViolation,
    LintContext,
    LintRule,
    Severity,
    SuggestedEdit,
)

_NAMES = {field.encode_name: field.name for field in fields(KubeletConfiguration)}
_ZEROS = (0, "0", "0s", "0m", "0h")
_OFF = ("0%", "100%")
_DERIVED = (Signal.CONTAINERFS_AVAILABLE, Signal.CONTAINERFS_INODES_FREE)


def _thresholds_dropped(config: ConfigSubject, _context: LintContext) -> Iterator[FieldViolation]:
    """`evictionHard` replaces all defaults, even when it is empty."""
    written = config.document.get("evictionHard")
    if not isinstance(written, dict) or config.config.merge_default_eviction_settings:
        return
    missing = [name for name in DEFAULT_EVICTION_HARD if name not in written]
    if missing:
        field = "mergeDefaultEvictionSettings"
        is_known = field not in config.settled.gates.rules.missing_config_fields
        edits = (SuggestedEdit(f"{config.prefix}{field}", value=True),) if is_known else ()
        facts = {"missing": ", ".join(missing)}
        yield FieldViolation(path=f"{config.prefix}evictionHard", facts=facts, edits=edits)


def _zeros(config: ConfigSubject, _context: LintContext) -> Iterator[FieldViolation]:
    """Zeros that the kubelet treats as unset."""
    for name, written in config.document.items():
        field_name = _NAMES.get(name)
        if field_name is None or isinstance(written, bool) or written not in _ZEROS:
            continue
        meant = getattr(config.config, field_name)
        if meant and isinstance(meant, int | Duration):
            path = config.prefix + name
            facts = {"field": name, "written": written, "meant": str(meant)}
            yield FieldViolation(path=path, facts=facts, edits=(SuggestedEdit(path),))


def _no_grace(config: ConfigSubject, _context: LintContext) -> Iterator[FieldViolation]:
    """Soft eviction kills pods at once unless a maximum grace period is set."""
    kubelet = config.config
    if kubelet.eviction_soft and not kubelet.eviction_max_pod_grace_period:
        path = f"{config.prefix}evictionMaxPodGracePeriod"
        facts = {"signals": ", ".join(sorted(kubelet.eviction_soft))}
        yield FieldViolation(
            path=f"{config.prefix}evictionSoft", facts=facts, edits=(SuggestedEdit(path, 60),)
        )


def _overwritten(config: ConfigSubject, _context: LintContext) -> Iterator[FieldViolation]:
    """Thresholds on containerfs are derived from those on the other file systems."""
    for field, written in _eviction(config):
        for name in written:
            if name in _DERIVED:
                path = f"{config.prefix}{field}[{name}]"
                yield FieldViolation(path=path, facts={"signal": name}, edits=(SuggestedEdit(path),))


def _switched_off(config: ConfigSubject, _context: LintContext) -> Iterator[FieldViolation]:
    """0 % and 100 % disable a threshold."""
    for field, written in _eviction(config):
        for name, value in written.items():
            if value in _OFF:
                path = f"{config.prefix}{field}[{name}]"
                yield FieldViolation(path=path, facts={"signal": name, "value": value})


def _eviction(config: ConfigSubject) -> Iterator[tuple[str, dict[str, object]]]:
    for field in ("evictionHard", "evictionSoft"):
        written = config.document.get(field)
        if isinstance(written, dict):
            yield field, written


def _cgroup_v1(config: ConfigSubject, _context: LintContext) -> Iterator[FieldViolation]:
    """Support for cgroup v1 will be removed."""
    written = config.document.get("failCgroupV1")
    if written is False:
        path = f"{config.prefix}failCgroupV1"
        yield FieldViolation(path=path, edits=(SuggestedEdit(path),))


def _memory_qos(config: ConfigSubject, _context: LintContext) -> Iterator[FieldViolation]:
    """The gate alone no longer protects memory."""
    if config.settled.gates["MemoryQoS"] and config.config.memory_reservation_policy == "None":
        edit = SuggestedEdit(f"{config.prefix}memoryReservationPolicy", "TieredReservation")
        yield FieldViolation(path=f"{config.prefix}featureGates[MemoryQoS]", edits=(edit,))


def _cpus_reserved_twice(config: ConfigSubject, _context: LintContext) -> Iterator[FieldViolation]:
    """`reservedSystemCPUs` replaces the cpu entries of both reservations."""
    if not config.config.reserved_system_cpus:
        return
    for field, amounts in (
        ("kubeReserved", config.config.kube_reserved),
        ("systemReserved", config.config.system_reserved),
    ):
        if amounts.get(CPU, "0") != "0":
            path = f"{config.prefix}{field}[{CPU}]"
            facts = {"field": field, "amount": amounts[CPU], "cpus": config.config.reserved_system_cpus}
            yield FieldViolation(path=path, facts=facts, edits=(SuggestedEdit(path),))


def _swap(config: ConfigSubject, _context: LintContext) -> Iterator[FieldViolation]:
    """Swap for pods on a kubelet that does not start on a host with swap."""
    kubelet = config.config
    if kubelet.memory_swap.swap_behavior == "LimitedSwap" and kubelet.fail_swap_on:
        edit = SuggestedEdit(f"{config.prefix}failSwapOn", value=False)
        yield FieldViolation(path=f"{config.prefix}memorySwap", edits=(edit,))


def _relative_threshold(config: ConfigSubject, _context: LintContext) -> Iterator[FieldViolation]:
    """`reservedMemory` has to be exact to the byte, but a percentage is a different amount on each machine."""
    value = config.config.eviction_hard.get(Signal.MEMORY_AVAILABLE, "")
    if config.is_static_memory and value.endswith("%") and value not in _OFF:
        path = f"{config.prefix}evictionHard[{Signal.MEMORY_AVAILABLE}]"
        yield FieldViolation(
            path=path, facts={"value": value}, edits=(SuggestedEdit(path, needs_value=True),)
        )


def _devices_alone(config: ConfigSubject, _context: LintContext) -> Iterator[FieldViolation]:
    """A topology policy with neither CPUs nor memory to align."""
    kubelet = config.config
    if kubelet.topology_manager_policy in ("restricted", "single-numa-node", "best-effort") and not (
        config.is_static_cpu or config.is_static_memory
    ):
        edit = SuggestedEdit(f"{config.prefix}cpuManagerPolicy", "static")
        facts = {"policy": kubelet.topology_manager_policy}
        yield FieldViolation(path=f"{config.prefix}topologyManagerPolicy", facts=facts, edits=(edit,))


def _over_reserved(config: ConfigSubject, _context: LintContext) -> Iterator[FieldViolation]:
    """Reservations that exceed the machine's capacity."""
    for excess in config.resources.over_reserved if config.resources else ():
        facts = {
            "resource": excess.resource,
            "reserved": str(excess.reservation),
            "capacity": str(excess.capacity),
        }
        yield FieldViolation(path=f"{config.prefix}kubeReserved", facts=facts)


def _irregular_cores(config: ConfigSubject, _context: LintContext) -> Iterator[FieldViolation]:
    """Cores with different numbers of threads, which the static policy treats as equal."""
    if config.machine is None or not config.is_static_cpu:
        return
    threads = {len(core.thread_ids) for node in config.machine.topology for core in node.cores}
    if len(threads) > 1:
        facts = {"threads": " and ".join(map(str, sorted(threads)))}
        yield FieldViolation(path=f"{config.prefix}cpuManagerPolicy", facts=facts)


def _distances_unlisted(config: ConfigSubject, _context: LintContext) -> Iterator[FieldViolation]:
    """Distances are looked up by node id; gaps in the ids lead beyond the end of the lists."""
    if config.machine is None:
        return
    manager = topology_manager(
        config.config.topology_manager_policy,
        config.config.topology_manager_scope,
        config.config.topology_manager_policy_options,
        config.machine.topology,
    )
    if isinstance(manager, Granted) and manager.value.missing_distances:
        first = manager.value.missing_distances[0]
        facts = {"numa": first.numa, "other": first.other, "listed": first.listed}
        path = f"{config.prefix}topologyManagerPolicyOptions[prefer-closest-numa-nodes]"
        yield FieldViolation(path=path, facts=facts, edits=(SuggestedEdit(path),))


def _beyond_a_numa_node(config: ConfigSubject, _context: LintContext) -> Iterator[FieldViolation]:
    """Reserving more memory of a NUMA node than it has makes the remainder wrap around."""
    if config.machine is None or not config.is_static_memory:
        return
    memory = {
        node.node_id: node.memory - sum(pages.page_size * pages.num_pages for pages in node.hugepages) * 1024
        for node in config.machine.topology
    }
    for index, entry in enumerate(config.config.reserved_memory):
        reserved, available = entry.limits.get(MEMORY, ZERO), memory.get(entry.numa_node)
        if available is not None and reserved.value() > available:
            path = f"{config.prefix}reservedMemory[{index}].limits[{MEMORY}]"
            available_text = Quantity.of(available, QuantityFormat.BINARY_SI).canonical()
            facts = {"numa": entry.numa_node, "reserved": reserved.canonical(), "has": available_text}
            yield FieldViolation(path=path, facts=facts)


CONFIG_RULES = (
    LintRule("NW309", Severity.WARNING, (ConfigSubject,), _thresholds_dropped),
    LintRule("NW310", Severity.WARNING, (ConfigSubject,), _zeros),
    LintRule("NW311", Severity.WARNING, (ConfigSubject,), _no_grace),
    LintRule("NW312", Severity.WARNING, (ConfigSubject,), _overwritten),
    LintRule("NW313", Severity.INFO, (ConfigSubject,), _switched_off),
    LintRule("NW314", Severity.WARNING, (ConfigSubject,), _cgroup_v1),
    LintRule("NW315", Severity.WARNING, (ConfigSubject,), _memory_qos, since="1.36"),
    LintRule("NW316", Severity.WARNING, (ConfigSubject,), _cpus_reserved_twice),
    LintRule("NW317", Severity.WARNING, (ConfigSubject,), _swap),
    LintRule("NW318", Severity.WARNING, (ConfigSubject,), _relative_threshold),
    LintRule("NW319", Severity.INFO, (ConfigSubject,), _devices_alone),
    LintRule("NW320", Severity.ERROR, (ConfigSubject,), _over_reserved),
    LintRule("NW321", Severity.WARNING, (ConfigSubject,), _irregular_cores),
    LintRule("NW322", Severity.WARNING, (ConfigSubject,), _distances_unlisted),
    LintRule("NW323", Severity.ERROR, (ConfigSubject,), _beyond_a_numa_node),
)
