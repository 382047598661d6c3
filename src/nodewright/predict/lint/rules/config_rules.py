"""Rules about KubeletConfigurations: eviction, reservations and misleading values."""

from collections.abc import Iterator

from msgspec.structs import fields

from nodewright.engine.core.config.complete_config import events_per_second
from nodewright.engine.core.topology.manager_config import topology_manager
from nodewright.engine.node.eviction_pass import huge_page_bytes
from nodewright.model.kubernetes.eviction_thresholds import DEFAULT_EVICTION_HARD, Signal, parse_thresholds
from nodewright.model.kubernetes.kubelet_configuration import KubeletConfiguration, eviction_settings
from nodewright.model.kubernetes.resource_names import CPU, MEMORY, amount_text
from nodewright.model.reasons.verdict import Granted
from nodewright.model.values.duration import Duration
from nodewright.model.values.quantity import ZERO, Quantity, QuantityFormat
from nodewright.predict.lint.lint_model import (
    ConfigSubject,
    FieldViolation,
    LintContext,
    Severity,
    SuggestedEdit,
    lint_rule,
)

_NAMES = {field.encode_name: field.name for field in fields(KubeletConfiguration)}
_ZEROS = (0, "0", "0s", "0m", "0h")
_OFF = ("0%", "100%")
_DERIVED = (Signal.CONTAINERFS_AVAILABLE, Signal.CONTAINERFS_INODES_FREE)


@lint_rule("NW309", Severity.WARNING, ConfigSubject)
def _thresholds_dropped(config: ConfigSubject, _context: LintContext) -> Iterator[FieldViolation]:
    """evictionHard without some of the default thresholds.

    Finding: evictionHard replaces all defaults: there is no threshold for {missing}

    As soon as `evictionHard` is set, even empty, no default applies. A configuration that only changes the memory
    threshold loses the thresholds for disks and inodes, and the node fills up without eviction.

    Remedy: Set `mergeDefaultEvictionSettings: true`, or set all thresholds.

    ```diff
     apiVersion: kubelet.config.k8s.io/v1beta1
     kind: KubeletConfiguration
    +mergeDefaultEvictionSettings: true
     evictionHard: {memory.available: 500Mi}
    ```
    """  # noqa: D403 - the name of a field
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


@lint_rule("NW310", Severity.WARNING, ConfigSubject)
def _zeros(config: ConfigSubject, _context: LintContext) -> Iterator[FieldViolation]:
    """A zero that means the default.

    Finding: {field}: {written} means {meant}: the kubelet treats zero as unset

    For these fields the kubelet treats zero as a missing value and applies its default: `maxPods: 0` admits 110
    pods, `evictionPressureTransitionPeriod: 0s` waits five minutes. Up to 1.36 `eventRecordQPS: 0` means 5 events a
    second; since 1.37 it is no limit.

    Remedy: Write the default, or the smallest value that is not zero.

    ```diff
     apiVersion: kubelet.config.k8s.io/v1beta1
     kind: KubeletConfiguration
    -evictionPressureTransitionPeriod: 0s
    +evictionPressureTransitionPeriod: 1s
    ```
    """
    for name, written in config.document.items():
        field_name = _NAMES.get(name)
        if field_name is None or isinstance(written, bool) or written not in _ZEROS:
            continue
        meant = getattr(config.config, field_name)
        if name == "eventRecordQPS":
            meant = events_per_second(config.config, config.settled.gates.rules)
        if meant and isinstance(meant, int | Duration):
            path = config.prefix + name
            facts = {"field": name, "written": written, "meant": str(meant)}
            yield FieldViolation(path=path, facts=facts, edits=(SuggestedEdit(path),))


@lint_rule("NW311", Severity.WARNING, ConfigSubject)
def _no_grace(config: ConfigSubject, _context: LintContext) -> Iterator[FieldViolation]:
    """Soft eviction without a grace period.

    Finding: evictionMaxPodGracePeriod is 0: pods evicted by soft thresholds ({signals}) are killed at once

    A soft eviction gives a pod the smaller of its own grace period and `evictionMaxPodGracePeriod`, which is 0 by
    default: pods are killed at once, faster than by a hard eviction (1 second).

    Remedy: Set `evictionMaxPodGracePeriod` to the seconds that pods need to terminate.

    ```diff
     apiVersion: kubelet.config.k8s.io/v1beta1
     kind: KubeletConfiguration
    +evictionMaxPodGracePeriod: 60
     evictionSoft: {memory.available: 1Gi}
     evictionSoftGracePeriod: {memory.available: 1m30s}
    ```
    """
    kubelet = config.config
    if kubelet.eviction_soft and not kubelet.eviction_max_pod_grace_period:
        path = f"{config.prefix}evictionMaxPodGracePeriod"
        facts = {"signals": ", ".join(sorted(kubelet.eviction_soft))}
        yield FieldViolation(
            path=f"{config.prefix}evictionSoft", facts=facts, edits=(SuggestedEdit(path, 60),)
        )


@lint_rule("NW312", Severity.WARNING, ConfigSubject)
def _overwritten(config: ConfigSubject, _context: LintContext) -> Iterator[FieldViolation]:
    """Thresholds on containerfs are overwritten.

    Finding: the threshold on {signal} is replaced by the one on nodefs or imagefs, whichever holds the containers

    The kubelet derives the thresholds of containerfs from those of its file system and overwrites configured
    values; without a threshold to copy, the value is zero.

    Remedy: Set nodefs or imagefs thresholds, and omit containerfs.

    ```diff
     apiVersion: kubelet.config.k8s.io/v1beta1
     kind: KubeletConfiguration
     mergeDefaultEvictionSettings: true
    -evictionHard: {containerfs.available: 20%}
    +evictionHard: {imagefs.available: 20%}
    ```
    """
    for field, written in _eviction(config):
        for name in written:
            if name in _DERIVED:
                path = f"{config.prefix}{field}[{name}]"
                yield FieldViolation(path=path, facts={"signal": name}, edits=(SuggestedEdit(path),))


@lint_rule("NW313", Severity.INFO, ConfigSubject)
def _switched_off(config: ConfigSubject, _context: LintContext) -> Iterator[FieldViolation]:
    """A disabled threshold.

    Finding: {value} disables the threshold on {signal}

    `0%` and `100%` both disable a threshold; `0` and `100` are errors or amounts. This is surprising because `100%`
    looks like the strictest threshold.

    Remedy: Keep it if that is intended; otherwise set an amount or a percentage in between.

    ```diff
     apiVersion: kubelet.config.k8s.io/v1beta1
     kind: KubeletConfiguration
     mergeDefaultEvictionSettings: true
    -evictionHard: {imagefs.available: 100%}
    +evictionHard: {imagefs.available: 20%}
    ```
    """
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


@lint_rule("NW314", Severity.WARNING, ConfigSubject)
def _cgroup_v1(config: ConfigSubject, _context: LintContext) -> Iterator[FieldViolation]:
    """The kubelet is allowed to run on cgroup v1.

    Finding: failCgroupV1: false allows the kubelet to run on cgroup v1, which is unsupported and will be removed

    From 1.35 on the kubelet refuses hosts with cgroup v1 by default. Version 1 has no MemoryQoS, no swap for pods
    and no pressure metrics; its support will be removed.

    Remedy: Move the host to cgroup v2 and remove the field.

    ```diff
     apiVersion: kubelet.config.k8s.io/v1beta1
     kind: KubeletConfiguration
    -failCgroupV1: false
    +maxPods: 110
    ```
    """
    written = config.document.get("failCgroupV1")
    if written is False:
        path = f"{config.prefix}failCgroupV1"
        yield FieldViolation(path=path, edits=(SuggestedEdit(path),))


@lint_rule("NW315", Severity.WARNING, ConfigSubject, since="1.36")
def _memory_qos(config: ConfigSubject, _context: LintContext) -> Iterator[FieldViolation]:
    """MemoryQoS without a reservation policy protects no memory.

    Finding: the gate MemoryQoS alone protects no memory: memoryReservationPolicy is None

    In earlier releases the gate set `memory.min` of every container with a request. Since 1.36 it does so only under
    `memoryReservationPolicy: TieredReservation`; under `None` zeros are written. What remains is `memory.high`,
    which throttles containers before their limit, since 1.37 only if `memoryThrottlingFactor` is set.

    Remedy: Set `memoryReservationPolicy: TieredReservation`.

    ```diff
     apiVersion: kubelet.config.k8s.io/v1beta1
     kind: KubeletConfiguration
    +memoryReservationPolicy: TieredReservation
     featureGates: {MemoryQoS: true}
    ```
    """
    is_set = config.config.feature_gates.get("MemoryQoS") and config.settled.gates["MemoryQoS"]
    if is_set and config.config.memory_reservation_policy == "None":
        edit = SuggestedEdit(f"{config.prefix}memoryReservationPolicy", "TieredReservation")
        yield FieldViolation(path=f"{config.prefix}featureGates[MemoryQoS]", edits=(edit,))


@lint_rule("NW316", Severity.WARNING, ConfigSubject)
def _cpus_reserved_twice(config: ConfigSubject, _context: LintContext) -> Iterator[FieldViolation]:
    """CPUs are reserved by number and by amount.

    Finding: {field}.cpu of {amount} is ignored: reservedSystemCPUs ({cpus}) replaces it

    `reservedSystemCPUs` replaces the cpu entries of kubeReserved and systemReserved by the number of its CPUs. The
    amounts look as if they were added, but they are not.

    Remedy: Remove the amount.

    ```diff
     apiVersion: kubelet.config.k8s.io/v1beta1
     kind: KubeletConfiguration
     reservedSystemCPUs: "0-1"
    -kubeReserved: {cpu: 500m, memory: 500Mi}
    +kubeReserved: {memory: 500Mi}
    ```
    """
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


@lint_rule("NW317", Severity.WARNING, ConfigSubject)
def _swap(config: ConfigSubject, _context: LintContext) -> Iterator[FieldViolation]:
    """Swap for pods on a kubelet that refuses swap.

    Finding: LimitedSwap lets pods swap, but failSwapOn prevents the kubelet from starting on a host with swap

    With `failSwapOn: true`, the default, the kubelet does not start where swap is on; where it is off, pods have
    none.

    Remedy: Set `failSwapOn: false`.

    ```diff
     apiVersion: kubelet.config.k8s.io/v1beta1
     kind: KubeletConfiguration
    +failSwapOn: false
     memorySwap: {swapBehavior: LimitedSwap}
    ```
    """
    kubelet = config.config
    if kubelet.memory_swap.swap_behavior == "LimitedSwap" and kubelet.fail_swap_on:
        edit = SuggestedEdit(f"{config.prefix}failSwapOn", value=False)
        yield FieldViolation(path=f"{config.prefix}memorySwap", edits=(edit,))


@lint_rule("NW318", Severity.WARNING, ConfigSubject)
def _relative_threshold(config: ConfigSubject, _context: LintContext) -> Iterator[FieldViolation]:
    """A percentage memory threshold under the static memory policy.

    Finding: memory.available of {value} is a different amount on each machine, but reservedMemory has to match it
    to the byte

    `reservedMemory` must equal the reservations plus the hard threshold exactly. A percentage is computed from the
    machine's memory with a 32-bit fraction (10% of 100Gi is 10737418400, not ...240): the sum holds on one machine
    and prevents the kubelet of the next one from starting.

    Remedy: Write the threshold as an amount.

    ```diff
     apiVersion: kubelet.config.k8s.io/v1beta1
     kind: KubeletConfiguration
     memoryManagerPolicy: Static
     mergeDefaultEvictionSettings: true
    -evictionHard: {memory.available: 5%}
    +evictionHard: {memory.available: 500Mi}
     reservedMemory:
     - numaNode: 0
       limits: {memory: 500Mi}
    ```
    """
    value = config.config.eviction_hard.get(Signal.MEMORY_AVAILABLE, "")
    if config.is_static_memory and value.endswith("%") and value not in _OFF:
        path = f"{config.prefix}evictionHard[{Signal.MEMORY_AVAILABLE}]"
        yield FieldViolation(
            path=path, facts={"value": value}, edits=(SuggestedEdit(path, needs_value=True),)
        )


@lint_rule("NW319", Severity.INFO, ConfigSubject)
def _devices_alone(config: ConfigSubject, _context: LintContext) -> Iterator[FieldViolation]:
    """A topology policy that aligns only devices.

    Finding: {policy}: neither CPUs nor memory are aligned, because both managers have the policy none

    The topology manager asks the CPU, memory and device managers for hints. With `cpuManagerPolicy: none` and
    `memoryManagerPolicy: None` only device plugins provide hints: a pod's GPU and NIC come from one NUMA node, and
    its CPUs from anywhere.

    Remedy: Set `cpuManagerPolicy: static` and reserve a CPU; or ignore the rule if only devices matter.

    ```diff
     apiVersion: kubelet.config.k8s.io/v1beta1
     kind: KubeletConfiguration
    +cpuManagerPolicy: static
    +kubeReserved: {cpu: "1"}
     topologyManagerPolicy: single-numa-node
    ```
    """
    kubelet = config.config
    if kubelet.topology_manager_policy in ("restricted", "single-numa-node", "best-effort") and not (
        config.is_static_cpu or config.is_static_memory
    ):
        edit = SuggestedEdit(f"{config.prefix}cpuManagerPolicy", "static")
        facts = {"policy": kubelet.topology_manager_policy}
        yield FieldViolation(path=f"{config.prefix}topologyManagerPolicy", facts=facts, edits=(edit,))


@lint_rule("NW320", Severity.ERROR, ConfigSubject)
def _over_reserved(config: ConfigSubject, _context: LintContext) -> Iterator[FieldViolation]:
    """Reservations exceed the machine's capacity.

    Finding: {reserved} of {resource} is reserved, but the machine has {capacity}: the kubelet does not start

    Reservations and hard thresholds together must not exceed the machine's capacity. Needs `--node`.

    Remedy: Reserve less.

    ```diff vm-4
     apiVersion: kubelet.config.k8s.io/v1beta1
     kind: KubeletConfiguration
    -kubeReserved: {memory: 32Gi}
    +kubeReserved: {memory: 1Gi}
    ```
    """
    for excess in config.resources.over_reserved if config.resources else ():
        facts = {
            "resource": excess.resource,
            "reserved": str(excess.reservation),
            "capacity": str(excess.capacity),
        }
        yield FieldViolation(path=f"{config.prefix}kubeReserved", facts=facts)


@lint_rule("NW321", Severity.WARNING, ConfigSubject)
def _irregular_cores(config: ConfigSubject, _context: LintContext) -> Iterator[FieldViolation]:
    """Exclusive CPUs on a machine with unequal cores.

    Finding: the machine has cores with {threads} threads; the static policy assumes equal cores and can allocate a
    CPU twice

    The CPU manager uses one number of threads per core, the quotient of CPUs and cores. On hybrid processors and
    with offline siblings it is wrong for some cores: the manager may treat a core as free although one of its
    threads is allocated. NW209 reports the affected pods. Needs `--node`.

    Remedy: Use `cpuManagerPolicy: none` on such machines.

    ```diff laptop-i7-1370p
     apiVersion: kubelet.config.k8s.io/v1beta1
     kind: KubeletConfiguration
    -cpuManagerPolicy: static
    -reservedSystemCPUs: "0-1"
    +cpuManagerPolicy: none
    ```
    """
    if config.machine is None or not config.is_static_cpu:
        return
    threads = {len(core.thread_ids) for node in config.machine.topology for core in node.cores}
    if len(threads) > 1:
        facts = {"threads": " and ".join(map(str, sorted(threads)))}
        yield FieldViolation(path=f"{config.prefix}cpuManagerPolicy", facts=facts)


@lint_rule("NW322", Severity.WARNING, ConfigSubject)
def _distances_unlisted(config: ConfigSubject, _context: LintContext) -> Iterator[FieldViolation]:
    """Missing distances between NUMA nodes.

    Finding: NUMA node {numa} lists {listed} distances, and that to node {other} is looked up by its id: the kubelet
    can crash

    With `prefer-closest-numa-nodes` the kubelet looks up distances by node id in lists that have one entry per
    node. Where the ids have gaps (0 and 8) it reads beyond their end and panics as soon as a pod can be placed on
    two such nodes. Needs `--node`.

    Remedy: Omit `prefer-closest-numa-nodes` on such machines.

    ```diff odd-numa-ids-0-8
     apiVersion: kubelet.config.k8s.io/v1beta1
     kind: KubeletConfiguration
     cpuManagerPolicy: static
     reservedSystemCPUs: "0"
     topologyManagerPolicy: restricted
    -topologyManagerPolicyOptions: {prefer-closest-numa-nodes: "true"}
    ```
    """
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


@lint_rule("NW323", Severity.ERROR, ConfigSubject)
def _beyond_a_numa_node(config: ConfigSubject, _context: LintContext) -> Iterator[FieldViolation]:
    """More memory of a NUMA node is reserved than it has.

    Finding: {reserved} of NUMA node {numa} is reserved, but it has {has} besides its huge pages: the remainder
    wraps around

    The kubelet checks that `reservedMemory` adds up over all NUMA nodes, not that each has enough. It subtracts
    unsigned numbers: the node then seems to have about 16 million TiB, and pods are allocated memory that does not
    exist. Needs `--node`.

    Remedy: Spread the reservation over the NUMA nodes.

    ```diff xeon-8380-2s
     apiVersion: kubelet.config.k8s.io/v1beta1
     kind: KubeletConfiguration
     memoryManagerPolicy: Static
     kubeReserved: {memory: 307100Mi}
     reservedMemory:
     - numaNode: 0
    -  limits: {memory: 300Gi}
    +  limits: {memory: 150Gi}
    +- numaNode: 1
    +  limits: {memory: 150Gi}
    ```
    """
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


@lint_rule("NW324", Severity.WARNING, ConfigSubject)
def _huge_pages_available(config: ConfigSubject, _context: LintContext) -> Iterator[FieldViolation]:
    """Huge pages count as available memory.

    Finding: memory.available has {pages} of huge pages, which no pod can use as memory: eviction at {threshold} comes
    too late

    Without HugepageAwareEviction, which is on since 1.37, the kubelet counts memory in huge pages as available. The
    node runs out of memory before what is available falls below a threshold that is smaller than the huge pages, and
    the OOM killer takes the place of eviction. Needs `--node`.

    Remedy: Raise the threshold by the size of the huge pages, and lower it again with the upgrade to 1.37.

    ```diff
     apiVersion: nodewright.dev/v1alpha1
     kind: NodeProfile
     metadata: {name: worker}
     spec:
       kubernetesVersion: "1.36"
       rootFsCapacity: 100000000000
       machineInfo:
         num_cores: 1
         num_sockets: 1
         memory_capacity: 17179869184
         hugepages: [{page_size: 2048, num_pages: 2048}]
         topology:
         - node_id: 0
           memory: 17179869184
           hugepages: [{page_size: 2048, num_pages: 2048}]
           distances: [10]
           cores:
           - {core_id: 0, thread_ids: [0]}
       kubeletConfiguration:
         evictionHard:
    -      memory.available: 100Mi
    +      memory.available: 4196Mi
           nodefs.available: 10%
           nodefs.inodesFree: 5%
           imagefs.available: 15%
           imagefs.inodesFree: 5%
    ```
    """
    if config.resources is None or config.settled.gates["HugepageAwareEviction"]:
        return
    capacity = config.resources.capacity
    pages = huge_page_bytes(capacity)
    parsed = parse_thresholds(eviction_settings(config.config))
    for threshold in parsed.thresholds if pages else ():
        if threshold.signal is Signal.MEMORY_AVAILABLE and threshold.is_hard:
            amount = threshold.value.of(capacity.get(MEMORY, ZERO)).value()
            if amount <= pages:
                raised = amount_text(MEMORY, amount + pages)
                path = f"{config.prefix}evictionHard[{Signal.MEMORY_AVAILABLE}]"
                facts = {"pages": amount_text(MEMORY, pages), "threshold": amount_text(MEMORY, amount)}
                yield FieldViolation(path=path, facts=facts, edits=(SuggestedEdit(path, raised),))
