"""The pages of the rules NW101 to NW109: QoS classes."""

from nodewright.predict.lint.pages.rule_page import RulePage, pod_manifest, workload_manifest

QOS_PAGES = {
    "NW101": RulePage(
        title="Pods of a DaemonSet that can be evicted",
        message="its pods are {qos}: if they use more memory than they request, memory pressure evicts them, and they are recreated on the same node",
        rationale=(
            "Under memory pressure the kubelet evicts pods that use more memory than they request before all others. "
            "A Guaranteed pod cannot use more: its limit is its request. The DaemonSet controller recreates an evicted "
            "pod on the same node, with a growing delay, because daemon pods tolerate the taints of a node under "
            "pressure; so it is evicted again while the pressure lasts. Other pressure does not depend on "
            "the QoS class: disk pressure compares usage with requests of ephemeral-storage, pressure on PIDs the "
            "priority, and under both the kubelet rejects new pods that are not critical. Pods of critical priority "
            "(`system-node-critical`, `system-cluster-critical`) are never evicted."
        ),
        remedy=(
            "Give every container limits on cpu and memory that equal its requests, which helps under memory pressure; "
            "or, if the node needs the pod, set `priorityClassName: system-node-critical`, which helps under all pressure."
        ),
        bad=workload_manifest(
            "DaemonSet",
            """      containers:
      - name: agent
        image: example.com/agent
        resources:
          requests: {cpu: 100m, memory: 64Mi}
          limits: {memory: 128Mi}
""",
            name="agent",
        ),
        replacements=(
            ("requests: {cpu: 100m, memory: 64Mi}", "requests: {cpu: 100m, memory: 128Mi}"),
            ("limits: {memory: 128Mi}", "limits: {cpu: 100m, memory: 128Mi}"),
        ),
    ),
    "NW102": RulePage(
        title="A container that makes the pod Burstable instead of Guaranteed",
        message="{role} {container} has no requests equal to limits, so the pod is Burstable, while {others} would make it Guaranteed{pinned}",
        rationale=(
            "A pod is Guaranteed only if every container, init containers and sidecars included, has limits on cpu "
            "and memory and requests that equal them. One helper without them makes the whole pod Burstable: it "
            "loses the exclusive CPUs and memory of the static policies of the CPU and memory managers, and its "
            "protection from eviction. No message shows it."
        ),
        remedy="Give the container requests and limits, equal on cpu and memory. A fraction of a CPU is enough.",
        bad=pod_manifest("""  containers:
  - name: app
    image: example.com/app
    resources:
      requests: {cpu: 2, memory: 1Gi}
      limits: {cpu: 2, memory: 1Gi}
  initContainers:
  - name: mesh
    image: example.com/mesh
    restartPolicy: Always
    resources:
      requests: {cpu: 100m, memory: 64Mi}
      limits: {memory: 64Mi}
"""),
        replacements=(("limits: {memory: 64Mi}", "limits: {cpu: 100m, memory: 64Mi}"),),
    ),
    "NW103": RulePage(
        title="Limits without requests",
        message="container {container} limits {resources} without a request: the limit becomes the request",
        rationale=(
            "The API server fills in a missing request from the limit. A generous limit is then reserved in "
            "full on the node, and counts as `requests` in quotas. If that holds for all containers, the pod is "
            "Guaranteed, perhaps unintentionally."
        ),
        remedy="Set the request: to the limit, if that is intended, or to what the container needs.",
        bad=pod_manifest("""  containers:
  - name: app
    image: example.com/app
    resources:
      limits: {cpu: 500m, memory: 256Mi}
"""),
        replacements=(("      limits:", "      requests: {cpu: 500m, memory: 256Mi}\n      limits:"),),
    ),
    "NW104": RulePage(
        title="An empty spec.resources hides the containers' requests",
        message="spec.resources is empty: the pod counts as BestEffort, while its containers make it {otherwise}",
        rationale=(
            "The QoS class depends only on whether `spec.resources` is set. If it is set and empty, the pod is "
            "BestEffort whatever its containers request: the first to be evicted and killed, with an oom_score_adj "
            "of 1000. Everything else (scheduling, cgroups) still depends on the containers."
        ),
        remedy="Omit `spec.resources`.",
        bad=pod_manifest("""  resources: {}
  containers:
  - name: app
    image: example.com/app
    resources:
      requests: {cpu: 500m, memory: 256Mi}
      limits: {cpu: 500m, memory: 256Mi}
"""),
        replacements=(("  resources: {}\n", ""),),
    ),
    "NW105": RulePage(
        title="Devices without cpu and memory",
        message="container {container} requests {devices} but neither cpu nor memory: the pod is BestEffort",
        rationale=(
            "Extended resources do not count for the QoS class. A pod that requests only GPUs is BestEffort: it is "
            "the first to be preempted for a critical pod and to be evicted, and its processes are the first that "
            "the kernel kills, although it holds the most expensive device on the node."
        ),
        remedy="Request cpu and memory, too.",
        bad=pod_manifest("""  containers:
  - name: train
    image: example.com/train
    resources:
      limits: {nvidia.com/gpu: 1}
"""),
        replacements=(
            (
                "      limits: {nvidia.com/gpu: 1}",
                "      requests: {cpu: 4, memory: 16Gi}\n      limits: {nvidia.com/gpu: 1, memory: 16Gi}",
            ),
        ),
    ),
    "NW106": RulePage(
        title="Pod-level resources prevent exclusive CPUs",
        message="the pod is Guaranteed with {cpus} CPUs at the pod level, but gets no exclusive CPUs",
        rationale=(
            "The CPU and memory managers ignore pods with `spec.resources` while the gate "
            "`PodLevelResourceManagers` is off, as it is by default: no exclusive CPUs, no memory on chosen NUMA "
            "nodes, no hints to the topology manager. The class is Guaranteed all the same. "
            "With `--node`, the rule has a finding only if a node has such a policy without the gate."
        ),
        remedy=(
            "Set requests and limits in the containers instead of the pod level if exclusive CPUs are needed; "
            "otherwise ignore the rule."
        ),
        bad=pod_manifest("""  resources:
    requests: {cpu: 2, memory: 1Gi}
    limits: {cpu: 2, memory: 1Gi}
  containers:
  - name: app
    image: example.com/app
"""),
        replacements=(
            (
                """  resources:
    requests: {cpu: 2, memory: 1Gi}
    limits: {cpu: 2, memory: 1Gi}
  containers:
  - name: app
    image: example.com/app
""",
                """  containers:
  - name: app
    image: example.com/app
    resources:
      requests: {cpu: 2, memory: 1Gi}
      limits: {cpu: 2, memory: 1Gi}
""",
            ),
        ),
    ),
    "NW107": RulePage(
        title="A limit of zero",
        message="container {container} limits {resource} to 0, which is no limit",
        rationale=(
            "For cgroups and for the QoS class a limit of zero is a missing limit: the container is not "
            "bounded, and the pod is not Guaranteed."
        ),
        remedy="Omit the limit, or set the intended one.",
        bad=pod_manifest("""  containers:
  - name: app
    image: example.com/app
    resources:
      requests: {cpu: 0, memory: 64Mi}
      limits: {cpu: 0, memory: 64Mi}
"""),
        replacements=(
            ("requests: {cpu: 0, memory: 64Mi}", "requests: {cpu: 10m, memory: 64Mi}"),
            ("limits: {cpu: 0, memory: 64Mi}", "limits: {memory: 64Mi}"),
        ),
    ),
    "NW108": RulePage(
        title="A request of zero beside a limit",
        message="container {container} requests no {resource} at all, although it may use {limit}",
        rationale=(
            "Zero is a request: the limit does not replace it as it replaces a missing request. A CPU request of zero "
            "becomes 2 shares, the minimum, so the container gets almost no CPU time on a busy node; a memory request "
            "of zero makes it an early victim of eviction. The pod is not Guaranteed."
        ),
        remedy="Omit the request, so that the limit becomes the request; or request what the container needs.",
        bad=pod_manifest("""  containers:
  - name: app
    image: example.com/app
    resources:
      requests: {cpu: 0, memory: 64Mi}
      limits: {cpu: 500m, memory: 64Mi}
"""),
        replacements=(("requests: {cpu: 0, memory: 64Mi}", "requests: {cpu: 100m, memory: 64Mi}"),),
    ),
    "NW109": RulePage(
        title="One container without a memory limit leaves the pod unlimited",
        message="{role} {container} has no memory limit, so the pod's cgroup has none, whatever the limit of {others}",
        rationale=(
            "The cgroup of a Burstable pod is limited only if every container, init containers included, has a "
            "limit. Otherwise nothing bounds the usage of the pod as a whole (temporary files in memory, "
            "page cache), and the containers with limits are killed first."
        ),
        remedy="Limit the container's memory, too; or give the pod a limit (`spec.resources.limits`).",
        bad=pod_manifest("""  containers:
  - name: app
    image: example.com/app
    resources:
      requests: {cpu: 100m, memory: 64Mi}
      limits: {memory: 128Mi}
  - name: helper
    image: example.com/helper
    resources:
      requests: {cpu: 10m, memory: 16Mi}
"""),
        replacements=(
            (
                "requests: {cpu: 10m, memory: 16Mi}",
                "requests: {cpu: 10m, memory: 16Mi}\n      limits: {memory: 32Mi}",
            ),
        ),
    ),
    "NW118": RulePage(
        title="A pod without any requests",
        message="no requests and no limits in {containers}: the pod is BestEffort, by choice or by neglect?",
        rationale=(
            "A BestEffort pod counts as nothing for the scheduler, is the first that the OOM killer ends, and is among "
            "the first that memory pressure evicts: any memory that it uses is more than it requests. It gets "
            "the smallest share of CPU time. Few pods are meant to run so, and most are so because nobody decided."
        ),
        remedy=(
            "Set requests of cpu and memory. If the pod is BestEffort by choice, write `resources: {}` in its containers: "
            "it has the same effect, and says so."
        ),
        bad=pod_manifest("""  containers:
  - name: app
    image: example.com/app
"""),
        replacements=(("    image: example.com/app\n", "    image: example.com/app\n    resources: {}\n"),),
    ),
    "NW119": RulePage(
        title="A container without a memory request",
        message="container {container} requests cpu, but no memory: for the scheduler it uses none, and memory pressure finds it above its request at once",
        rationale=(
            "Without a memory request the scheduler places the pod as if it used no memory, so nodes are filled "
            "beyond what they have. Under memory pressure the kubelet first evicts pods that use more than they "
            "request, which such a container always does."
        ),
        remedy="Set a memory request of what the container uses.",
        bad=pod_manifest("""  containers:
  - name: app
    image: example.com/app
    resources:
      requests: {cpu: 100m}
"""),
        replacements=(("requests: {cpu: 100m}", "requests: {cpu: 100m, memory: 64Mi}"),),
    ),
}
