"""The pages of the rules NW301 to NW308: configurations that the kubelet or its managers refuse."""

from nodewright.render.lint.page import Page, kubelet

MANAGER_PAGES = {
    "NW301": Page(
        title="The kubelet does not take the configuration",
        says="the kubelet does not start: {text}",
        why=(
            "The file does not decode, sets a feature gate that there is not or that is locked, has a value that is "
            "not allowed, or one that turns out wrong at the start: reservations and thresholds that cannot be read, "
            "cgroup v1 where `failCgroupV1` is on. The text is the kubelet's own."
        ),
        mend="What the text says.",
        bad=kubelet("maxPods: -1\n"),
        change=(("maxPods: -1", "maxPods: 110"),),
    ),
    "NW302": Page(
        title="A field that there is not",
        says="there is no field {field}: the kubelet passes over it with a line in its log",
        why=(
            "The kubelet reads its file strictly; if that fails over unknown or repeated fields, it reads it once more "
            "and lets them pass. A misspelt field therefore changes nothing, and nobody is told but the log."
        ),
        mend="Spell it as in the reference of KubeletConfiguration, or take it away.",
        bad=kubelet("maxPod: 50\n"),
        change=(("maxPod: 50", "maxPods: 50"),),
    ),
    "NW303": Page(
        title="reservedMemory is not the sum of all that is reserved",
        says="the kubelet does not start: {fault}",
        why=(
            "With `memoryManagerPolicy: Static`, `reservedMemory` over all NUMA nodes must be exactly kubeReserved + "
            "systemReserved + the hard eviction threshold of memory. The threshold counts even where nothing is "
            "written: it is 100Mi by default. Huge pages cannot be reserved at all."
        ),
        mend="Change one entry so that the sum is right.",
        bad=kubelet("""memoryManagerPolicy: Static
kubeReserved: {memory: 400Mi}
reservedMemory:
- numaNode: 0
  limits: {memory: 400Mi}
"""),
        change=(("limits: {memory: 400Mi}", "limits: {memory: 500Mi}"),),
    ),
    "NW304": Page(
        title="The static CPU policy without a CPU for the system",
        says="the kubelet does not start: {fault}",
        why=(
            "The static policy keeps the reserved CPUs for everything that has none of its own, and does not start "
            "without any: kubeReserved, systemReserved or reservedSystemCPUs must come to more than zero."
        ),
        mend="Reserve a CPU.",
        bad=kubelet("cpuManagerPolicy: static\n"),
        change=(
            (
                "cpuManagerPolicy: static\n",
                "cpuManagerPolicy: static\nkubeReserved: {cpu: 500m}\nsystemReserved: {cpu: 500m}\n",
            ),
        ),
    ),
    "NW305": Page(
        title="Policies and options that the managers refuse",
        says="the kubelet does not start: {fault}",
        why=(
            "Policies of the managers and their options are not checked with the file but when the managers are made: "
            "unknown names and values, options of alpha quality without their gate, options that exclude one another, "
            "`align-by-socket` under `single-numa-node`, more than 8 NUMA nodes. A check of the file alone does not see it."
        ),
        mend="What the message says.",
        bad=kubelet("""cpuManagerPolicy: static
reservedSystemCPUs: "0"
cpuManagerPolicyOptions: {full-pcpus: "true"}
"""),
        change=(("full-pcpus:", "full-pcpus-only:"),),
    ),
    "NW306": Page(
        title="A setting that nothing looks at",
        says="{field} has no effect with {other}: {value}",
        why=(
            "Options and scope of the topology manager are not even read under the policy `none`; "
            "`prefer-closest-numa-nodes` chooses between sets of several nodes, of which `single-numa-node` has none; "
            "`reservedMemory` counts under the static memory policy alone."
        ),
        mend="Take it away, or set the policy that it was meant for.",
        bad=kubelet("""topologyManagerScope: pod
"""),
        change=(
            (
                "topologyManagerScope: pod",
                'cpuManagerPolicy: static\nkubeReserved: {cpu: "1"}\ntopologyManagerPolicy: restricted\ntopologyManagerScope: pod',
            ),
        ),
    ),
    "NW307": Page(
        title="A fraction of a CPU is reserved under the static policy",
        says="{amount} CPUs are reserved: allocatable goes by that, and the CPU manager keeps {whole}",
        why=(
            "The CPU manager rounds the reservation up to whole CPUs and never gives those away; allocatable, which "
            "the scheduler and the kubelet's own checks go by, has the fraction taken off. A pod of whole CPUs can fit "
            "by the sum and find too few CPUs: it fails on the node."
        ),
        mend="Reserve a whole number of CPUs.",
        bad=kubelet("""cpuManagerPolicy: static
kubeReserved: {cpu: 500m}
"""),
        change=(("cpu: 500m", "cpu: 1000m"),),
    ),
    "NW308": Page(
        title="Reserved CPUs break up cores",
        says="{reserved} reserved: full-pcpus-only leaves {wasted} more CPUs unused, the other threads of those cores",
        why=(
            "With `full-pcpus-only` no core is given out of which a thread is reserved. The rest of such a core is lost "
            "to exclusive containers though allocatable counts it; together with `distribute-cpus-across-numa` the "
            "kubelet can even hang over it. Needs `--node`, for the threads of a core."
        ),
        mend="Reserve whole cores: all threads of each.",
        bad=kubelet("""cpuManagerPolicy: static
cpuManagerPolicyOptions: {full-pcpus-only: "true"}
reservedSystemCPUs: "0"
"""),
        change=(('reservedSystemCPUs: "0"', 'reservedSystemCPUs: "0-1"'),),
        node="vm-4",
    ),
}
