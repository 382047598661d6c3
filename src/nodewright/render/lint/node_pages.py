"""The pages of the rules NW201 to NW209: pods on the nodes that are given."""

from nodewright.render.lint.page import Page, kubelet, pod, workload

_STATIC = kubelet("""cpuManagerPolicy: static
reservedSystemCPUs: 0-1
""")
_WHOLE_CORES = kubelet("""cpuManagerPolicy: static
cpuManagerPolicyOptions: {full-pcpus-only: "true"}
reservedSystemCPUs: 0-1,128-129
""")
_ONE_NUMA_NODE = kubelet("""cpuManagerPolicy: static
topologyManagerPolicy: single-numa-node
reservedSystemCPUs: 0,128
""")
_BOTH = kubelet("""cpuManagerPolicy: static
memoryManagerPolicy: Static
topologyManagerPolicy: restricted
reservedSystemCPUs: "0"
reservedMemory:
- numaNode: 0
  limits: {memory: 100Mi}
""")
_PROFILE = """apiVersion: nodewright.dev/v1alpha1
kind: NodeProfile
metadata: {name: worker}
spec:
  rootFsCapacity: 100000000000
  machineInfo:
    num_cores: 4
    num_sockets: 1
    memory_capacity: 17179869184
    hugepages: [{page_size: 2048, num_pages: 512}]
    topology:
    - node_id: 0
      memory: 17179869184
      hugepages: [{page_size: 2048, num_pages: 512}]
      distances: [10]
      cores:
      - {core_id: 0, thread_ids: [0]}
      - {core_id: 1, thread_ids: [1]}
      - {core_id: 2, thread_ids: [2]}
      - {core_id: 3, thread_ids: [3]}
  kubeletConfiguration:
    cpuManagerPolicy: static
    memoryManagerPolicy: Static
    topologyManagerPolicy: restricted
    topologyManagerScope: pod
    reservedSystemCPUs: "0"
    reservedMemory: [{numaNode: 0, limits: {memory: 100Mi}}]
---
"""


def _asking(kind: str, amounts: str) -> str:
    """A workload of one container whose requests and limits are these."""
    return workload(
        kind,
        f"""      containers:
      - name: app
        image: example.com/app
        resources:
          requests: {{{amounts}}}
          limits: {{{amounts}}}
""",
    )


NODE_PAGES = {
    "NW201": Page(
        title="Part of a core where only whole ones are given out",
        says="{nodes}: {containers} is no multiple of {perCore} CPUs, and full-pcpus-only gives out whole cores only (SMTAlignmentError); {consequence}",
        why=(
            "With the option `full-pcpus-only` the CPU manager refuses exclusive CPUs that are not whole cores. The "
            "scheduler knows nothing of cores: it sends the pod again and again to a node that turns it away. A "
            "ReplicaSet then makes new pods without end; thousands of failed ones have brought clusters down. "
            "The rule needs nodes (`--node`), for threads per core and the option are theirs."
        ),
        mend="Ask for whole cores, or for a fraction of a CPU if none of its own are needed.",
        bad=_asking("Deployment", "cpu: 3, memory: 1Gi"),
        change=(("requests: {cpu: 3,", "requests: {cpu: 4,"), ("limits: {cpu: 3,", "limits: {cpu: 4,")),
        node="epyc-7742-2s-nps1",
        kubelet=_WHOLE_CORES,
    ),
    "NW202": Page(
        title="Requests that no given node can align",
        says="{nodes}: no NUMA nodes suit all of it even when nothing else runs there (TopologyAffinityError); {consequence}{changes}",
        why=(
            "Under the policies `restricted` and `single-numa-node` the topology manager refuses what cannot lie on "
            "NUMA nodes that all managers prefer. If an empty node cannot do it, none ever will; but the scheduler "
            "looks at sums only and goes on sending pods there. The changes in the message were tried."
        ),
        mend="Ask for less, spread it over more pods, or use nodes of another shape or policy.",
        bad=_asking("StatefulSet", "cpu: 160, memory: 1Gi"),
        change=(
            ("requests: {cpu: 160,", "requests: {cpu: 100,"),
            ("limits: {cpu: 160,", "limits: {cpu: 100,"),
        ),
        node="epyc-7742-2s-nps1",
        kubelet=_ONE_NUMA_NODE,
    ),
    "NW203": Page(
        title="Every given node turns the pod away, and the scheduler does not know",
        says="{nodes}: {sent}the kubelet refuses the pod each time: {reason}; {consequence}{changes}",
        why=(
            "What the kubelet decides by itself (exclusive CPUs, memory and devices on NUMA nodes, sysctls, features) "
            "is no part of the scheduler's sums. A refusal that comes on an empty node comes on every one. With a "
            "controller behind the pod this is a replica storm: failed pods pile up without end."
        ),
        mend="What the message says, or nodes that are configured otherwise.",
        bad=workload(
            "Deployment",
            """      securityContext:
        sysctls:
        - {name: net.core.somaxconn, value: "1024"}
      containers:
      - name: app
        image: example.com/app
""",
        ),
        change=(
            (
                """      securityContext:
        sysctls:
        - {name: net.core.somaxconn, value: "1024"}
""",
                "",
            ),
        ),
        node="vm-4",
    ),
    "NW204": Page(
        title="The pod fits on none of the given nodes",
        says="{nodes}: too large for every one of them, empty as they are; on {node}: {short}",
        why=(
            "Allocatable is less than what the machine has: reservations, eviction thresholds and huge pages are "
            "taken off. A pod that is larger stays Pending for ever. Nodes that the pod's node selector, affinity or "
            "tolerations keep it from are not counted, nor those that say nothing of the devices that it asks for."
        ),
        mend="Ask for less, or add a node of a larger shape with another `--node`.",
        bad=pod("""  containers:
  - name: app
    image: example.com/app
    resources:
      requests: {cpu: 500m, memory: 16Gi}
"""),
        change=(("memory: 16Gi", "memory: 15Gi"),),
        node="vm-4",
    ),
    "NW205": Page(
        title="Some of the given nodes turn the pod away",
        says="{nodes}: the kubelet refuses the pod though the scheduler may send it there: {reason}; {good} would take it",
        why=(
            "The nodes differ in what only their kubelets look at. The scheduler may choose any of them, so that the "
            "pod fails now and then, and its controller makes another one that may fail again."
        ),
        mend="A node selector or affinity for the nodes that can take it.",
        bad=_asking("Deployment", "cpu: 12, memory: 1Gi"),
        change=(("requests: {cpu: 12,", "requests: {cpu: 4,"), ("limits: {cpu: 12,", "limits: {cpu: 4,")),
        node="epyc-7742-2s-nps1 epyc-7742-2s-l3numa",
        kubelet=kubelet("""cpuManagerPolicy: static
topologyManagerPolicy: single-numa-node
topologyManagerPolicyOptions: {max-allowable-numa-nodes: "32"}
reservedSystemCPUs: 0-3,128-131
"""),
    ),
    "NW206": Page(
        title="The pod makes the kubelet crash or hang",
        says="{nodes}: {reason}",
        why=(
            "Known defects of the kubelet: the static memory policy crashes over a huge page size that the machine's "
            "NUMA nodes do not list, before any check would refuse the pod; the distribution of CPUs over NUMA nodes "
            "can go round for ever where free CPUs do not make up whole groups. Static pods, and pods that name their node, "
            "meet no scheduler that would keep them away."
        ),
        mend="Ask for what the machine lists; or leave the option or policy out on such machines.",
        bad=pod(
            """  containers:
  - name: app
    image: example.com/app
    resources:
      requests: {cpu: 1, memory: 1Gi, hugepages-16Mi: 64Mi}
      limits: {cpu: 1, memory: 1Gi, hugepages-16Mi: 64Mi}
""",
            meta="  annotations: {kubernetes.io/config.source: file}\n",
        ),
        change=((", hugepages-16Mi: 64Mi", ""), (", hugepages-16Mi: 64Mi", "")),
        node="vm-4",
        kubelet=_BOTH,
    ),
    "NW207": Page(
        title="More than one CPU, and not whole ones",
        says="container {container} asks for {cpus} CPUs: on {nodes} only whole numbers are given for its own",
        why=(
            "The static CPU policy gives CPUs of their own to Guaranteed containers that ask for whole ones; 2000m is "
            "whole, 1500m is not. The container shares its CPUs with all others, which may well be what is wanted."
        ),
        mend="Ask for a whole number if the container should have its CPUs alone.",
        bad=_asking("Deployment", "cpu: 1500m, memory: 1Gi"),
        change=(
            ("requests: {cpu: 1500m,", "requests: {cpu: 2,"),
            ("limits: {cpu: 1500m,", "limits: {cpu: 2,"),
        ),
        node="epyc-7742-2s-nps1",
        kubelet=_STATIC,
    ),
    "NW208": Page(
        title="Huge pages that only init containers ask for, in the pod scope",
        says="{nodes}: {resource} of init container {container} does not count when the pod's NUMA nodes are chosen",
        why=(
            "With `topologyManagerScope: pod` the memory manager counts only the kinds of memory that app containers "
            "ask for. Huge pages of an init container alone are left out of the hint, and may then not be where the "
            "pod is put."
        ),
        mend="Let an app container ask for the same kind, or use the scope `container`.",
        bad=_PROFILE
        + pod("""  initContainers:
  - name: load
    image: example.com/load
    resources:
      requests: {cpu: 1, memory: 1Gi, hugepages-2Mi: 64Mi}
      limits: {cpu: 1, memory: 1Gi, hugepages-2Mi: 64Mi}
  containers:
  - name: app
    image: example.com/app
    resources:
      requests: {cpu: 1, memory: 1Gi}
      limits: {cpu: 1, memory: 1Gi}
"""),
        change=(
            ("requests: {cpu: 1, memory: 1Gi}", "requests: {cpu: 1, memory: 1Gi, hugepages-2Mi: 64Mi}"),
            ("limits: {cpu: 1, memory: 1Gi}", "limits: {cpu: 1, memory: 1Gi, hugepages-2Mi: 64Mi}"),
        ),
    ),
    "NW209": Page(
        title="CPUs that are given to two containers",
        says="{node}: the kubelet gives out CPUs {cpus}, which are not free: it takes the machine for a regular one",
        why=(
            "The kubelet divides the number of CPUs by the number of cores and takes the quotient for the threads of "
            "every core. On hybrid processors, and where siblings are offline, whole cores are then taken of which a "
            "thread belongs to somebody else: two containers run on one CPU that each has for its own."
        ),
        mend="No static CPU policy on such machines, or the small cores and offline siblings among the reserved CPUs.",
        bad=_asking("Deployment", "cpu: 2, memory: 1Gi"),
        change=(("requests: {cpu: 2,", "requests: {cpu: 1,"), ("limits: {cpu: 2,", "limits: {cpu: 1,")),
        node="laptop-i7-1370p",
        kubelet=kubelet("""cpuManagerPolicy: static
reservedSystemCPUs: "0"
"""),
    ),
}
