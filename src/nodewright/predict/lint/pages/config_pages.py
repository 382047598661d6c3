"""The pages of the rules NW309 to NW323: eviction, reservations and values that mean something else.

The pages of the rules NW301 to NW308: configurations that the kubelet or its managers refuse.
"""

from nodewright.predict.lint.pages.rule_page import RulePage, kubelet_configuration

CONFIG_PAGES = {
    "NW309": RulePage(
        title="evictionHard without some of the default thresholds",
        message="evictionHard replaces all defaults: there is no threshold for {missing}",
        rationale=(
            "As soon as `evictionHard` is set, even empty, no default applies. A configuration that only changes the "
            "memory threshold loses the thresholds for disks and inodes, and the node fills up without eviction."
        ),
        remedy="Set `mergeDefaultEvictionSettings: true`, or set all thresholds.",
        bad=kubelet_configuration("evictionHard: {memory.available: 500Mi}\n"),
        replacements=(("evictionHard:", "mergeDefaultEvictionSettings: true\nevictionHard:"),),
    ),
    "NW310": RulePage(
        title="A zero that means the default",
        message="{field}: {written} means {meant}: the kubelet treats zero as unset",
        rationale=(
            "For these fields the kubelet treats zero as a missing value and applies its default: `maxPods: 0` admits "
            "110 pods, `evictionPressureTransitionPeriod: 0s` waits five minutes."
        ),
        remedy="Write the default, or the smallest value that is not zero.",
        bad=kubelet_configuration("evictionPressureTransitionPeriod: 0s\n"),
        replacements=(("0s", "1s"),),
    ),
    "NW311": RulePage(
        title="Soft eviction without a grace period",
        message="evictionMaxPodGracePeriod is 0: pods evicted by soft thresholds ({signals}) are killed at once",
        rationale=(
            "A soft eviction gives a pod the smaller of its own grace period and `evictionMaxPodGracePeriod`, which is "
            "0 by default: pods are killed at once, faster than by a hard eviction (1 second)."
        ),
        remedy="Set `evictionMaxPodGracePeriod` to the seconds that pods need to terminate.",
        bad=kubelet_configuration("""evictionSoft: {memory.available: 1Gi}
evictionSoftGracePeriod: {memory.available: 1m30s}
"""),
        replacements=(("evictionSoft:", "evictionMaxPodGracePeriod: 60\nevictionSoft:"),),
    ),
    "NW312": RulePage(
        title="Thresholds on containerfs are overwritten",
        message="the threshold on {signal} is replaced by the one on nodefs or imagefs, whichever holds the containers",
        rationale=(
            "The kubelet derives the thresholds of containerfs from those of its file system and overwrites configured "
            "values; without a threshold to copy, the value is zero."
        ),
        remedy="Set nodefs or imagefs thresholds, and omit containerfs.",
        bad=kubelet_configuration("""mergeDefaultEvictionSettings: true
evictionHard: {containerfs.available: 20%}
"""),
        replacements=(("containerfs.available: 20%", "imagefs.available: 20%"),),
    ),
    "NW313": RulePage(
        title="A disabled threshold",
        message="{value} disables the threshold on {signal}",
        rationale=(
            "`0%` and `100%` both disable a threshold; `0` and `100` are errors or amounts. This is surprising because "
            "`100%` looks like the strictest threshold."
        ),
        remedy="Keep it if that is intended; otherwise set an amount or a percentage in between.",
        bad=kubelet_configuration("""mergeDefaultEvictionSettings: true
evictionHard: {imagefs.available: 100%}
"""),
        replacements=(("100%", "20%"),),
    ),
    "NW314": RulePage(
        title="The kubelet is allowed to run on cgroup v1",
        message="failCgroupV1: false allows the kubelet to run on cgroup v1, which is unsupported and will be removed",
        rationale=(
            "From 1.35 on the kubelet refuses hosts with cgroup v1 by default. Version 1 has no MemoryQoS, "
            "no swap for pods and no pressure metrics; its support will be removed."
        ),
        remedy="Move the host to cgroup v2 and remove the field.",
        bad=kubelet_configuration("failCgroupV1: false\n"),
        replacements=(("failCgroupV1: false\n", "maxPods: 110\n"),),
    ),
    "NW315": RulePage(
        title="MemoryQoS without a reservation policy protects no memory",
        message="the gate MemoryQoS alone protects no memory: memoryReservationPolicy is None",
        rationale=(
            "In earlier releases the gate set `memory.min` of every container with a request. In 1.36 it does so only "
            "under `memoryReservationPolicy: TieredReservation`; under `None` zeros are written. What remains is "
            "`memory.high`, which throttles containers before their limit."
        ),
        remedy="Set `memoryReservationPolicy: TieredReservation`.",
        bad=kubelet_configuration("featureGates: {MemoryQoS: true}\n"),
        replacements=(("featureGates:", "memoryReservationPolicy: TieredReservation\nfeatureGates:"),),
    ),
    "NW316": RulePage(
        title="CPUs are reserved by number and by amount",
        message="{field}.cpu of {amount} is ignored: reservedSystemCPUs ({cpus}) replaces it",
        rationale=(
            "`reservedSystemCPUs` replaces the cpu entries of kubeReserved and systemReserved by the number of its CPUs. "
            "The amounts look as if they were added, but they are not."
        ),
        remedy="Remove the amount.",
        bad=kubelet_configuration("""reservedSystemCPUs: "0-1"
kubeReserved: {cpu: 500m, memory: 500Mi}
"""),
        replacements=(("cpu: 500m, ", ""),),
    ),
    "NW317": RulePage(
        title="Swap for pods on a kubelet that refuses swap",
        message="LimitedSwap lets pods swap, but failSwapOn prevents the kubelet from starting on a host with swap",
        rationale="With `failSwapOn: true`, the default, the kubelet does not start where swap is on; where it is off, pods have none.",
        remedy="Set `failSwapOn: false`.",
        bad=kubelet_configuration("memorySwap: {swapBehavior: LimitedSwap}\n"),
        replacements=(("memorySwap:", "failSwapOn: false\nmemorySwap:"),),
    ),
    "NW318": RulePage(
        title="A percentage memory threshold under the static memory policy",
        message="memory.available of {value} is a different amount on each machine, but reservedMemory has to match it to the byte",
        rationale=(
            "`reservedMemory` must equal the reservations plus the hard threshold exactly. A percentage is computed from the "
            "machine's memory with a 32-bit fraction (10% of 100Gi is 10737418400, not ...240): the sum holds on one "
            "machine and prevents the kubelet of the next one from starting."
        ),
        remedy="Write the threshold as an amount.",
        bad=kubelet_configuration("""memoryManagerPolicy: Static
mergeDefaultEvictionSettings: true
evictionHard: {memory.available: 5%}
reservedMemory:
- numaNode: 0
  limits: {memory: 500Mi}
"""),
        replacements=(("5%", "500Mi"),),
    ),
    "NW319": RulePage(
        title="A topology policy that aligns only devices",
        message="{policy}: neither CPUs nor memory are aligned, because both managers have the policy none",
        rationale=(
            "The topology manager asks the CPU, memory and device managers for hints. With `cpuManagerPolicy: none` and "
            "`memoryManagerPolicy: None` only device plugins provide hints: a pod's GPU and NIC come from one NUMA node, and "
            "its CPUs from anywhere."
        ),
        remedy="Set `cpuManagerPolicy: static` and reserve a CPU; or ignore the rule if only devices matter.",
        bad=kubelet_configuration("topologyManagerPolicy: single-numa-node\n"),
        replacements=(
            (
                "topologyManagerPolicy:",
                'cpuManagerPolicy: static\nkubeReserved: {cpu: "1"}\ntopologyManagerPolicy:',
            ),
        ),
    ),
    "NW320": RulePage(
        title="Reservations exceed the machine's capacity",
        message="{reserved} of {resource} is reserved, but the machine has {capacity}: the kubelet does not start",
        rationale="Reservations and hard thresholds together must not exceed the machine's capacity. Needs `--node`.",
        remedy="Reserve less.",
        bad=kubelet_configuration("kubeReserved: {memory: 32Gi}\n"),
        replacements=(("32Gi", "1Gi"),),
        node="vm-4",
    ),
    "NW321": RulePage(
        title="Exclusive CPUs on a machine with unequal cores",
        message="the machine has cores with {threads} threads; the static policy assumes equal cores and can allocate a CPU twice",
        rationale=(
            "The CPU manager uses one number of threads per core, the quotient of CPUs and cores. On hybrid processors "
            "and with offline siblings it is wrong for some cores: the manager may treat a core as free although one "
            "of its threads is allocated. NW209 reports the affected pods. Needs `--node`."
        ),
        remedy="Use `cpuManagerPolicy: none` on such machines.",
        bad=kubelet_configuration("""cpuManagerPolicy: static
reservedSystemCPUs: "0-1"
"""),
        replacements=(('cpuManagerPolicy: static\nreservedSystemCPUs: "0-1"', "cpuManagerPolicy: none"),),
        node="laptop-i7-1370p",
    ),
    "NW322": RulePage(
        title="Missing distances between NUMA nodes",
        message="NUMA node {numa} lists {listed} distances, and that to node {other} is looked up by its id: the kubelet can crash",
        rationale=(
            "With `prefer-closest-numa-nodes` the kubelet looks up distances by node id in lists that have one entry per "
            "node. Where the ids have gaps (0 and 8) it reads beyond their end and panics as soon as a pod can be "
            "placed on two such nodes. Needs `--node`."
        ),
        remedy="Omit `prefer-closest-numa-nodes` on such machines.",
        bad=kubelet_configuration("""cpuManagerPolicy: static
reservedSystemCPUs: "0"
topologyManagerPolicy: restricted
topologyManagerPolicyOptions: {prefer-closest-numa-nodes: "true"}
"""),
        replacements=(('topologyManagerPolicyOptions: {prefer-closest-numa-nodes: "true"}\n', ""),),
        node="odd-numa-ids-0-8",
    ),
    "NW323": RulePage(
        title="More memory of a NUMA node is reserved than it has",
        message="{reserved} of NUMA node {numa} is reserved, but it has {has} besides its huge pages: the remainder wraps around",
        rationale=(
            "The kubelet checks that `reservedMemory` adds up over all NUMA nodes, not that each has enough. It "
            "subtracts unsigned numbers: the node then seems to have about 16 million TiB, and pods are allocated "
            "memory that does not exist. Needs `--node`."
        ),
        remedy="Spread the reservation over the NUMA nodes.",
        bad=kubelet_configuration("""memoryManagerPolicy: Static
kubeReserved: {memory: 307100Mi}
reservedMemory:
- numaNode: 0
  limits: {memory: 300Gi}
"""),
        replacements=(
            (
                "  limits: {memory: 300Gi}\n",
                "  limits: {memory: 150Gi}\n- numaNode: 1\n  limits: {memory: 150Gi}\n",
            ),
        ),
        node="xeon-8380-2s",
    ),
}


MANAGER_PAGES = {
    "NW301": RulePage(
        title="The kubelet rejects the configuration",
        message="the kubelet does not start: {text}",
        rationale=(
            "The file does not decode, sets an unknown or locked feature gate, has an invalid value, or one that fails at "
            "the start: reservations and thresholds that cannot be parsed, cgroup v1 where `failCgroupV1` is on. The "
            "text is the kubelet's error."
        ),
        remedy="Correct the field that the error names.",
        bad=kubelet_configuration("maxPods: -1\n"),
        replacements=(("maxPods: -1", "maxPods: 110"),),
    ),
    "NW302": RulePage(
        title="An unknown field",
        message="unknown field {field}: the kubelet only logs it and ignores the field",
        rationale=(
            "The kubelet reads its file strictly; if that fails because of unknown or repeated fields, it reads it again "
            "leniently. A misspelt field therefore has no effect, and only the log shows it."
        ),
        remedy="Spell it as in the KubeletConfiguration reference, or remove it.",
        bad=kubelet_configuration("maxPod: 50\n"),
        replacements=(("maxPod: 50", "maxPods: 50"),),
    ),
    "NW303": RulePage(
        title="reservedMemory is not the sum of all reservations",
        message="the kubelet does not start: {fault}",
        rationale=(
            "With `memoryManagerPolicy: Static`, `reservedMemory` over all NUMA nodes must be exactly kubeReserved + "
            "systemReserved + the hard eviction threshold of memory. The threshold counts even where it is "
            "not set: its default is 100Mi. Huge pages cannot be reserved at all."
        ),
        remedy="Change one entry so that the sum is right.",
        bad=kubelet_configuration("""memoryManagerPolicy: Static
kubeReserved: {memory: 400Mi}
reservedMemory:
- numaNode: 0
  limits: {memory: 400Mi}
"""),
        replacements=(("limits: {memory: 400Mi}", "limits: {memory: 500Mi}"),),
    ),
    "NW304": RulePage(
        title="The static CPU policy without a CPU for the system",
        message="the kubelet does not start: {fault}",
        rationale=(
            "The static policy keeps the reserved CPUs for everything without exclusive CPUs, and does not start "
            "without any: kubeReserved, systemReserved or reservedSystemCPUs must be more than zero."
        ),
        remedy="Reserve a CPU.",
        bad=kubelet_configuration("cpuManagerPolicy: static\n"),
        replacements=(
            (
                "cpuManagerPolicy: static\n",
                "cpuManagerPolicy: static\nkubeReserved: {cpu: 500m}\nsystemReserved: {cpu: 500m}\n",
            ),
        ),
    ),
    "NW305": RulePage(
        title="Policies and options that the managers refuse",
        message="the kubelet does not start: {fault}",
        rationale=(
            "Policies of the managers and their options are not checked with the file but when the managers are created: "
            "unknown names and values, alpha options without their gate, options that exclude one another, "
            "`align-by-socket` under `single-numa-node`, more than 8 NUMA nodes. Validating the file alone does not "
            "detect it."
        ),
        remedy="Correct the option or policy that the error names.",
        bad=kubelet_configuration("""cpuManagerPolicy: static
reservedSystemCPUs: "0"
cpuManagerPolicyOptions: {full-pcpus: "true"}
"""),
        replacements=(("full-pcpus:", "full-pcpus-only:"),),
    ),
    "NW306": RulePage(
        title="A setting without effect",
        message="{field} has no effect with {other}: {value}",
        rationale=(
            "Options and scope of the topology manager are ignored under the policy `none`; "
            "`prefer-closest-numa-nodes` chooses between sets of several nodes, of which `single-numa-node` has none; "
            "`reservedMemory` counts only under the static memory policy."
        ),
        remedy="Remove it, or set the policy that it was meant for.",
        bad=kubelet_configuration("""topologyManagerScope: pod
"""),
        replacements=(
            (
                "topologyManagerScope: pod",
                'cpuManagerPolicy: static\nkubeReserved: {cpu: "1"}\ntopologyManagerPolicy: restricted\ntopologyManagerScope: pod',
            ),
        ),
    ),
    "NW307": RulePage(
        title="A fraction of a CPU is reserved under the static policy",
        message="{amount} CPUs are reserved: allocatable is reduced by that amount, but the CPU manager keeps {whole}",
        rationale=(
            "The CPU manager rounds the reservation up to whole CPUs and never allocates those; allocatable, which the "
            "scheduler and the kubelet's admission use, is reduced only by the fraction. A pod of whole CPUs can fit "
            "by the sum although too few CPUs are free: it fails on the node."
        ),
        remedy="Reserve a whole number of CPUs.",
        bad=kubelet_configuration("""cpuManagerPolicy: static
kubeReserved: {cpu: 500m}
"""),
        replacements=(("cpu: 500m", "cpu: 1000m"),),
    ),
    "NW308": RulePage(
        title="Reserved CPUs split cores",
        message="{reserved} reserved: full-pcpus-only leaves {wasted} more CPUs unused, the other threads of those cores",
        rationale=(
            "With `full-pcpus-only` no core with a reserved thread is allocated. The rest of such a core is lost to "
            "exclusive containers although allocatable counts it; together with `distribute-cpus-across-numa` the "
            "kubelet can even hang. Needs `--node`, for the threads of a core."
        ),
        remedy="Reserve whole cores: all threads of each.",
        bad=kubelet_configuration("""cpuManagerPolicy: static
cpuManagerPolicyOptions: {full-pcpus-only: "true"}
reservedSystemCPUs: "0"
"""),
        replacements=(('reservedSystemCPUs: "0"', 'reservedSystemCPUs: "0-1"'),),
        node="vm-4",
    ),
}
