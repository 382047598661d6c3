"""The pages of the rules NW309 to NW323: eviction, reservations and values that mean something else."""

from nodewright.render.lint.page import Page, kubelet

CONFIG_PAGES = {
    "NW309": Page(
        title="evictionHard without some of the default thresholds",
        says="evictionHard replaces all defaults: there is no threshold for {missing}",
        why=(
            "As soon as `evictionHard` is there, even empty, none of the defaults holds. Who only wants another amount "
            "for memory loses the thresholds for disks and inodes, and the node fills up without eviction."
        ),
        mend="Set `mergeDefaultEvictionSettings: true`, or write all of them.",
        bad=kubelet("evictionHard: {memory.available: 500Mi}\n"),
        change=(("evictionHard:", "mergeDefaultEvictionSettings: true\nevictionHard:"),),
    ),
    "NW310": Page(
        title="A zero that means the default",
        says="{field}: {written} means {meant}: the kubelet cannot tell a zero from nothing",
        why=(
            "For these fields the kubelet takes a zero for a missing value and puts in its default: `maxPods: 0` lets "
            "110 pods in, `evictionPressureTransitionPeriod: 0s` waits five minutes."
        ),
        mend="Write the default, or the smallest value that is not zero.",
        bad=kubelet("evictionPressureTransitionPeriod: 0s\n"),
        change=(("0s", "1s"),),
    ),
    "NW311": Page(
        title="Soft eviction that leaves pods no time",
        says="evictionMaxPodGracePeriod is 0: pods that soft thresholds ({signals}) evict get no time to end",
        why=(
            "A soft eviction gives a pod the smaller of its own grace period and `evictionMaxPodGracePeriod`, which is "
            "0 unless it is set: pods are killed at once, which is harder than a hard eviction (1 second)."
        ),
        mend="Set `evictionMaxPodGracePeriod` to as many seconds as pods may take.",
        bad=kubelet("""evictionSoft: {memory.available: 1Gi}
evictionSoftGracePeriod: {memory.available: 1m30s}
"""),
        change=(("evictionSoft:", "evictionMaxPodGracePeriod: 60\nevictionSoft:"),),
    ),
    "NW312": Page(
        title="Thresholds on containerfs are not kept",
        says="the threshold on {signal} is replaced by the one on nodefs or imagefs, whichever holds the containers",
        why=(
            "The kubelet works out the thresholds of containerfs from those of the file system that it is on, and "
            "overwrites what was written; where there is nothing to copy, it comes to zero."
        ),
        mend="Set nodefs or imagefs, and leave containerfs out.",
        bad=kubelet("""mergeDefaultEvictionSettings: true
evictionHard: {containerfs.available: 20%}
"""),
        change=(("containerfs.available: 20%", "imagefs.available: 20%"),),
    ),
    "NW313": Page(
        title="A threshold that is switched off",
        says="{value} switches the threshold on {signal} off",
        why=(
            "`0%` and `100%` both stand for no threshold at all; `0` and `100` are errors or amounts. Good to know, for "
            "`100%` looks like the strictest of all."
        ),
        mend="Leave it if that is meant; else write an amount or a percentage between.",
        bad=kubelet("""mergeDefaultEvictionSettings: true
evictionHard: {imagefs.available: 100%}
"""),
        change=(("100%", "20%"),),
    ),
    "NW314": Page(
        title="The kubelet is let run on cgroup v1",
        says="failCgroupV1: false lets the kubelet run on cgroup v1, which is unsupported and will be removed",
        why=(
            "From 1.35 on the kubelet refuses hosts with cgroup v1 unless told otherwise. Version 1 has no MemoryQoS, "
            "no swap for pods, no pressure figures; its support will go."
        ),
        mend="Move the host to cgroup v2 and take the field away.",
        bad=kubelet("failCgroupV1: false\n"),
        change=(("failCgroupV1: false\n", "maxPods: 110\n"),),
    ),
    "NW315": Page(
        title="MemoryQoS without a reservation policy protects no memory",
        says="the gate MemoryQoS alone protects nobody's memory: memoryReservationPolicy is None",
        why=(
            "In earlier releases the gate set `memory.min` of every container with a request. In 1.36 it does so only "
            "under `memoryReservationPolicy: TieredReservation`; under `None` zeros are written. What stays is "
            "`memory.high`, which slows containers down before their limit."
        ),
        mend="Set `memoryReservationPolicy: TieredReservation`.",
        bad=kubelet("featureGates: {MemoryQoS: true}\n"),
        change=(("featureGates:", "memoryReservationPolicy: TieredReservation\nfeatureGates:"),),
    ),
    "NW316": Page(
        title="CPUs are reserved by number and by amount",
        says="{field}.cpu of {amount} does not count: reservedSystemCPUs ({cpus}) takes its place",
        why=(
            "`reservedSystemCPUs` replaces the cpu entries of kubeReserved and systemReserved by the number of its CPUs. "
            "The amounts look as if they were added, and are not."
        ),
        mend="Take the amount away.",
        bad=kubelet("""reservedSystemCPUs: "0-1"
kubeReserved: {cpu: 500m, memory: 500Mi}
"""),
        change=(("cpu: 500m, ", ""),),
    ),
    "NW317": Page(
        title="Swap for pods on a kubelet that refuses swap",
        says="LimitedSwap lets pods swap, and failSwapOn keeps the kubelet from starting on a host with swap",
        why="With `failSwapOn: true`, the default, the kubelet does not start where swap is on; where it is off, pods have none.",
        mend="Set `failSwapOn: false`.",
        bad=kubelet("memorySwap: {swapBehavior: LimitedSwap}\n"),
        change=(("memorySwap:", "failSwapOn: false\nmemorySwap:"),),
    ),
    "NW318": Page(
        title="A memory threshold in per cent under the static memory policy",
        says="memory.available of {value} is another amount on each machine, and reservedMemory has to match it to the byte",
        why=(
            "`reservedMemory` must equal the reservations plus the hard threshold exactly. A percentage is taken of the "
            "machine's memory with a 32-bit fraction (10% of 100Gi is 10737418400, not ...240): the sum holds on one "
            "machine and keeps the next kubelet from starting."
        ),
        mend="Write the threshold as an amount.",
        bad=kubelet("""memoryManagerPolicy: Static
mergeDefaultEvictionSettings: true
evictionHard: {memory.available: 5%}
reservedMemory:
- numaNode: 0
  limits: {memory: 500Mi}
"""),
        change=(("5%", "500Mi"),),
    ),
    "NW319": Page(
        title="A topology policy that aligns devices alone",
        says="{policy}: neither CPUs nor memory are aligned, for both managers have their policy none",
        why=(
            "The topology manager asks the CPU, memory and device managers for hints. With `cpuManagerPolicy: none` and "
            "`memoryManagerPolicy: None` only device plugins have any: a pod's GPU and NIC come from one NUMA node, and "
            "its CPUs from anywhere."
        ),
        mend="Set `cpuManagerPolicy: static`, and reserve a CPU; or ignore the rule if devices are all that counts.",
        bad=kubelet("topologyManagerPolicy: single-numa-node\n"),
        change=(
            (
                "topologyManagerPolicy:",
                'cpuManagerPolicy: static\nkubeReserved: {cpu: "1"}\ntopologyManagerPolicy:',
            ),
        ),
    ),
    "NW320": Page(
        title="More is reserved than there is",
        says="{reserved} of {resource} is reserved, and the machine has {capacity}: the kubelet does not start",
        why="Reservations and hard thresholds together must not exceed the machine's capacity. Needs `--node`.",
        mend="Reserve less.",
        bad=kubelet("kubeReserved: {memory: 32Gi}\n"),
        change=(("32Gi", "1Gi"),),
        node="vm-4",
    ),
    "NW321": Page(
        title="Exclusive CPUs on a machine with unequal cores",
        says="the machine has cores with {threads} threads; the static policy takes them for equal and can give out a CPU twice",
        why=(
            "The CPU manager knows one number of threads per core, the quotient of CPUs and cores. On hybrid processors "
            "and with offline siblings it is wrong for some cores: it may take a core for free of which a thread "
            "belongs to somebody. NW209 tells the pods that it happens to. Needs `--node`."
        ),
        mend="Use `cpuManagerPolicy: none` there.",
        bad=kubelet("""cpuManagerPolicy: static
reservedSystemCPUs: "0-1"
"""),
        change=(('cpuManagerPolicy: static\nreservedSystemCPUs: "0-1"', "cpuManagerPolicy: none"),),
        node="laptop-i7-1370p",
    ),
    "NW322": Page(
        title="Distances between NUMA nodes that the machine does not list",
        says="NUMA node {numa} lists {listed} distances, and that to node {other} is looked up by its id: the kubelet can crash",
        why=(
            "With `prefer-closest-numa-nodes` the kubelet looks up distances by node id in lists that have an entry a "
            "node. Where the ids have holes (0 and 8) it reads beyond their end and panics, as soon as a pod can be "
            "placed on two such nodes. Needs `--node`."
        ),
        mend="Leave `prefer-closest-numa-nodes` out on such machines.",
        bad=kubelet("""cpuManagerPolicy: static
reservedSystemCPUs: "0"
topologyManagerPolicy: restricted
topologyManagerPolicyOptions: {prefer-closest-numa-nodes: "true"}
"""),
        change=(('topologyManagerPolicyOptions: {prefer-closest-numa-nodes: "true"}\n', ""),),
        node="odd-numa-ids-0-8",
    ),
    "NW323": Page(
        title="More memory of a NUMA node is reserved than it has",
        says="{reserved} of NUMA node {numa} is reserved, which has {has} beside its huge pages: what is left wraps around",
        why=(
            "The kubelet checks that `reservedMemory` adds up over all NUMA nodes, not that each has as much. It "
            "subtracts without a sign: the node then seems to have some 16 million TiB, and pods are promised memory "
            "there that does not exist. Needs `--node`."
        ),
        mend="Spread the reservation over the NUMA nodes.",
        bad=kubelet("""memoryManagerPolicy: Static
kubeReserved: {memory: 307100Mi}
reservedMemory:
- numaNode: 0
  limits: {memory: 300Gi}
"""),
        change=(
            (
                "  limits: {memory: 300Gi}\n",
                "  limits: {memory: 150Gi}\n- numaNode: 1\n  limits: {memory: 150Gi}\n",
            ),
        ),
        node="xeon-8380-2s",
    ),
}
