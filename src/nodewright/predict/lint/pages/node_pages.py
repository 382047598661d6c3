"""The pages of the rules NW201 to NW210: pods on the nodes that are given."""

from nodewright.predict.lint.pages.rule_page import (
    RulePage,
    kubelet_configuration,
    pod_manifest,
    workload_manifest,
)

_STATIC = kubelet_configuration("""cpuManagerPolicy: static
reservedSystemCPUs: 0-1
""")
_WHOLE_CORES = kubelet_configuration("""cpuManagerPolicy: static
cpuManagerPolicyOptions: {full-pcpus-only: "true"}
reservedSystemCPUs: 0-1,128-129
""")
_ONE_NUMA_NODE = kubelet_configuration("""cpuManagerPolicy: static
topologyManagerPolicy: single-numa-node
reservedSystemCPUs: 0,128
""")
_BOTH = kubelet_configuration("""cpuManagerPolicy: static
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
    """A workload of one container with these requests and limits."""
    return workload_manifest(
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
    "NW201": RulePage(
        title="A fraction of a core where only whole cores are allocated",
        message="{nodes}: {containers} is no multiple of {perCore} CPUs, and full-pcpus-only allocates only whole cores (SMTAlignmentError); {consequence}",
        rationale=(
            "With the option `full-pcpus-only` the CPU manager refuses exclusive CPUs that are not whole cores. The "
            "scheduler does not know about cores: it binds the pod again and again to a node that rejects it. A "
            "ReplicaSet then creates new pods without end; thousands of failed pods have brought clusters down. "
            "The rule needs nodes (`--node`), which determine the threads per core and the option."
        ),
        remedy="Request whole cores, or a fraction of a CPU if no exclusive CPUs are needed.",
        bad=_asking("Deployment", "cpu: 3, memory: 1Gi"),
        replacements=(("requests: {cpu: 3,", "requests: {cpu: 4,"), ("limits: {cpu: 3,", "limits: {cpu: 4,")),
        node="epyc-7742-2s-nps1",
        kubelet_config=_WHOLE_CORES,
    ),
    "NW202": RulePage(
        title="Requests that no given node can align",
        message="{nodes}: no NUMA nodes satisfy all requests even on an empty node (TopologyAffinityError); {consequence}{changes}",
        rationale=(
            "Under the policies `restricted` and `single-numa-node` the topology manager refuses requests that do not fit "
            "on NUMA nodes that all managers prefer. If an empty node cannot satisfy them, no node can; but the "
            "scheduler only considers sums and keeps binding pods there. The changes in the message were tried."
        ),
        remedy="Request less, split it over more pods, or use nodes of another shape or policy.",
        bad=_asking("StatefulSet", "cpu: 160, memory: 1Gi"),
        replacements=(
            ("requests: {cpu: 160,", "requests: {cpu: 100,"),
            ("limits: {cpu: 160,", "limits: {cpu: 100,"),
        ),
        node="epyc-7742-2s-nps1",
        kubelet_config=_ONE_NUMA_NODE,
    ),
    "NW203": RulePage(
        title="Every given node rejects the pod, and the scheduler does not know",
        message="{nodes}: {sent}the kubelet refuses the pod each time: {reason}; {consequence}{changes}",
        rationale=(
            "The kubelet's own decisions (exclusive CPUs, memory and devices on NUMA nodes, sysctls, features) are not "
            "part of the scheduler's sums. A refusal on an empty node repeats on every one. If a controller owns the "
            "pod, this is a replica storm: failed pods accumulate without end."
        ),
        remedy="Apply a change from the message, or use nodes with another configuration.",
        bad=workload_manifest(
            "Deployment",
            """      securityContext:
        sysctls:
        - {name: net.core.somaxconn, value: "1024"}
      containers:
      - name: app
        image: example.com/app
        resources: {}
""",
        ),
        replacements=(
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
    "NW204": RulePage(
        title="The pod fits on none of the given nodes",
        message="{nodes}: too large for each of them even when empty; on {node}: {short}",
        rationale=(
            "Allocatable is less than the machine's capacity: reservations, eviction thresholds and huge pages are "
            "subtracted. A larger pod stays Pending for ever. Nodes that the pod's node selector, affinity or "
            "tolerations exclude are not counted, nor those without information about the requested devices."
        ),
        remedy="Request less, or add a node of a larger shape with another `--node`.",
        bad=pod_manifest("""  containers:
  - name: app
    image: example.com/app
    resources:
      requests: {cpu: 500m, memory: 16Gi}
"""),
        replacements=(("memory: 16Gi", "memory: 15Gi"),),
        node="vm-4",
    ),
    "NW205": RulePage(
        title="Some of the given nodes reject the pod",
        message="{nodes}: the kubelet refuses the pod although the scheduler may bind it there: {reason}; {good} would admit it",
        rationale=(
            "The nodes differ in facts that only their kubelets check. The scheduler may choose any of them, so the "
            "pod fails now and then, and its controller creates another one that may fail again."
        ),
        remedy="Add a node selector or affinity for the nodes that admit the pod.",
        bad=_asking("Deployment", "cpu: 12, memory: 1Gi"),
        replacements=(
            ("requests: {cpu: 12,", "requests: {cpu: 4,"),
            ("limits: {cpu: 12,", "limits: {cpu: 4,"),
        ),
        node="epyc-7742-2s-nps1 epyc-7742-2s-l3numa",
        kubelet_config=kubelet_configuration("""cpuManagerPolicy: static
topologyManagerPolicy: single-numa-node
topologyManagerPolicyOptions: {max-allowable-numa-nodes: "32"}
reservedSystemCPUs: 0-3,128-131
"""),
    ),
    "NW206": RulePage(
        title="The pod makes the kubelet crash or hang",
        message="{nodes}: {reason}",
        rationale=(
            "Known defects of the kubelet: the static memory policy crashes on a huge page size that the machine's "
            "NUMA nodes do not list, before any check would refuse the pod; the distribution of CPUs over NUMA nodes "
            "can loop for ever where free CPUs do not form whole groups. Static pods, and pods that name their node, "
            "bypass the scheduler, which would keep them away."
        ),
        remedy="Request only what the machine lists, or omit the option or policy on such machines.",
        bad=pod_manifest(
            """  containers:
  - name: app
    image: example.com/app
    resources:
      requests: {cpu: 1, memory: 1Gi, hugepages-16Mi: 64Mi}
      limits: {cpu: 1, memory: 1Gi, hugepages-16Mi: 64Mi}
""",
            meta="  annotations: {kubernetes.io/config.source: file}\n",
        ),
        replacements=((", hugepages-16Mi: 64Mi", ""), (", hugepages-16Mi: 64Mi", "")),
        node="vm-4",
        kubelet_config=_BOTH,
    ),
    "NW207": RulePage(
        title="More than one CPU, but not a whole number",
        message="container {container} requests {cpus} CPUs: on {nodes} only whole numbers get exclusive CPUs",
        rationale=(
            "The static CPU policy allocates exclusive CPUs to Guaranteed containers that request a whole number; 2000m "
            "is whole, 1500m is not. The container shares its CPUs with all others, which may be intended."
        ),
        remedy="Request a whole number if the container needs exclusive CPUs.",
        bad=_asking("Deployment", "cpu: 1500m, memory: 1Gi"),
        replacements=(
            ("requests: {cpu: 1500m,", "requests: {cpu: 2,"),
            ("limits: {cpu: 1500m,", "limits: {cpu: 2,"),
        ),
        node="epyc-7742-2s-nps1",
        kubelet_config=_STATIC,
    ),
    "NW208": RulePage(
        title="Huge pages that only init containers request, in the pod scope",
        message="{nodes}: {resource} of init container {container} is ignored when the pod's NUMA nodes are chosen",
        rationale=(
            "With `topologyManagerScope: pod` the memory manager counts only the kinds of memory that app containers "
            "request. Huge pages of an init container alone are not part of the hint, and may then be missing on "
            "the pod's NUMA nodes."
        ),
        remedy="Request the same kind in an app container, or use the scope `container`.",
        bad=_PROFILE
        + pod_manifest("""  initContainers:
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
        replacements=(
            ("requests: {cpu: 1, memory: 1Gi}", "requests: {cpu: 1, memory: 1Gi, hugepages-2Mi: 64Mi}"),
            ("limits: {cpu: 1, memory: 1Gi}", "limits: {cpu: 1, memory: 1Gi, hugepages-2Mi: 64Mi}"),
        ),
    ),
    "NW209": RulePage(
        title="CPUs that are allocated twice",
        message="{node}: the kubelet allocates CPUs {cpus}, which are not free: it assumes equal cores",
        rationale=(
            "The kubelet divides the number of CPUs by the number of cores and uses the quotient as the threads of "
            "every core. On hybrid processors, and where siblings are offline, it then allocates whole cores with a "
            "thread that is already allocated: two containers share a CPU that each has exclusively."
        ),
        remedy="Use no static CPU policy on such machines, or reserve the small cores and the siblings of offline CPUs.",
        bad=_asking("Deployment", "cpu: 2, memory: 1Gi"),
        replacements=(("requests: {cpu: 2,", "requests: {cpu: 1,"), ("limits: {cpu: 2,", "limits: {cpu: 1,")),
        node="laptop-i7-1370p",
        kubelet_config=kubelet_configuration("""cpuManagerPolicy: static
reservedSystemCPUs: "0"
"""),
    ),
    "NW210": RulePage(
        title="A resource that no node has",
        message="{resource} of container {container}: none of the nodes has it, so nothing else is judged there",
        rationale=(
            "The scheduler binds a pod only to nodes that have all its extended resources. A kubelet ignores those "
            "that it does not know, so it would admit the pod and run it without its devices."
        ),
        remedy="Name a node with the resource in --node, or correct its name.",
        bad=_asking("Deployment", "cpu: 2, memory: 1Gi, nvidia.com/gpus: 1"),
        replacements=((", nvidia.com/gpus: 1}", "}"), (", nvidia.com/gpus: 1}", "}")),
        node="epyc-7742-2s-nps1",
    ),
}
