"""The pages of the rules NW101 to NW109: QoS classes."""

from nodewright.render.lint.page import Page, pod, workload

QOS_PAGES = {
    "NW101": Page(
        title="Pods of a DaemonSet that can be evicted",
        says="its pods are {qos}: a node that evicts one gets it back at once",
        why=(
            "Under memory or disk pressure the kubelet evicts pods that are not Guaranteed and use more than they "
            "request. The DaemonSet controller makes the pod anew on the same node, at once, because daemon pods "
            "tolerate the taints of a node under pressure. So it is evicted again and again, while the node gets "
            "no relief. Pods of critical priority (`system-node-critical`, `system-cluster-critical`) are not evicted."
        ),
        mend=(
            "Give every container limits on cpu and memory that equal its requests; or, if the node cannot do "
            "without the pod, `priorityClassName: system-node-critical`."
        ),
        bad=workload(
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
        change=(
            ("requests: {cpu: 100m, memory: 64Mi}", "requests: {cpu: 100m, memory: 128Mi}"),
            ("limits: {memory: 128Mi}", "limits: {cpu: 100m, memory: 128Mi}"),
        ),
    ),
    "NW102": Page(
        title="A container that takes the others out of Guaranteed",
        says="{role} {container} has no requests equal to limits, so that the pod is Burstable, where {others} would make it Guaranteed{pinned}",
        why=(
            "A pod is Guaranteed only if every container, init containers and sidecars included, has limits on cpu "
            "and memory and requests that equal them. One helper without them makes the whole pod Burstable: it "
            "loses the CPUs and memory of its own that the static policies of the CPU and memory managers give, and "
            "its place among the last to be evicted. Nothing tells."
        ),
        mend="Give the container requests and limits, equal on cpu and memory. Fractions of a CPU will do.",
        bad=pod("""  containers:
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
        change=(("limits: {memory: 64Mi}", "limits: {cpu: 100m, memory: 64Mi}"),),
    ),
    "NW103": Page(
        title="Limits without requests",
        says="container {container} limits {resources} and requests none: the limit becomes the request",
        why=(
            "The API server fills in a missing request from the limit. A ceiling that was meant generously is then "
            "set aside in full on the node, and counts as `requests` in quotas. If that is so for all containers, "
            "the pod is Guaranteed, perhaps without anybody having wanted it."
        ),
        mend="Write the request down: the limit, if that is what is meant, or what the container needs.",
        bad=pod("""  containers:
  - name: app
    image: example.com/app
    resources:
      limits: {cpu: 500m, memory: 256Mi}
"""),
        change=(("      limits:", "      requests: {cpu: 500m, memory: 256Mi}\n      limits:"),),
    ),
    "NW104": Page(
        title="An empty spec.resources hides what the containers ask for",
        says="spec.resources is empty: the pod counts as BestEffort, where its containers make it {otherwise}",
        why=(
            "The QoS class looks only at whether `spec.resources` is there. If it is, and empty, the pod is "
            "BestEffort whatever its containers ask for: the first to be evicted and killed, with an oom_score_adj "
            "of 1000. Everything else (scheduling, cgroups) goes by the containers as before."
        ),
        mend="Leave `spec.resources` out.",
        bad=pod("""  resources: {}
  containers:
  - name: app
    image: example.com/app
    resources:
      requests: {cpu: 500m, memory: 256Mi}
      limits: {cpu: 500m, memory: 256Mi}
"""),
        change=(("  resources: {}\n", ""),),
    ),
    "NW105": Page(
        title="Devices and nothing else",
        says="container {container} asks for {devices} and for neither cpu nor memory: the pod is BestEffort",
        why=(
            "Extended resources do not count for the QoS class. A pod that asks for GPUs alone is BestEffort: it is "
            "the first to make way for a critical pod, the first to be evicted, and its processes are the first that "
            "the kernel kills, though it holds the most expensive thing on the node."
        ),
        mend="Request cpu and memory, too.",
        bad=pod("""  containers:
  - name: train
    image: example.com/train
    resources:
      limits: {nvidia.com/gpu: 1}
"""),
        change=(
            (
                "      limits: {nvidia.com/gpu: 1}",
                "      requests: {cpu: 4, memory: 16Gi}\n      limits: {nvidia.com/gpu: 1, memory: 16Gi}",
            ),
        ),
    ),
    "NW106": Page(
        title="Resources of the pod level keep the pod from CPUs of its own",
        says="the pod is Guaranteed with {cpus} CPUs at the pod level, and gets none of its own",
        why=(
            "The CPU and memory managers leave pods with `spec.resources` alone while the gate "
            "`PodLevelResourceManagers` is off, as it is by default: no exclusive CPUs, no memory on chosen NUMA "
            "nodes, no hints to the topology manager. The class says Guaranteed all the same. "
            "With nodes given, it is told if one of them has such a policy and not the gate."
        ),
        mend=(
            "State requests and limits in the containers in place of the pod level if CPUs of its own are wanted; "
            "else ignore the rule."
        ),
        bad=pod("""  resources:
    requests: {cpu: 2, memory: 1Gi}
    limits: {cpu: 2, memory: 1Gi}
  containers:
  - name: app
    image: example.com/app
"""),
        change=(
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
    "NW107": Page(
        title="A limit of zero",
        says="container {container} limits {resource} to 0, which is no limit",
        why=(
            "For cgroups and for the QoS class a limit of zero is a missing limit: the container is bounded by "
            "nothing, and the pod is not Guaranteed."
        ),
        mend="Leave the limit out, or write the one that is meant.",
        bad=pod("""  containers:
  - name: app
    image: example.com/app
    resources:
      requests: {cpu: 0, memory: 64Mi}
      limits: {cpu: 0, memory: 64Mi}
"""),
        change=(
            ("requests: {cpu: 0, memory: 64Mi}", "requests: {cpu: 10m, memory: 64Mi}"),
            ("limits: {cpu: 0, memory: 64Mi}", "limits: {memory: 64Mi}"),
        ),
    ),
    "NW108": Page(
        title="A request of zero beside a limit",
        says="container {container} requests no {resource} at all, though it may use {limit}",
        why=(
            "Zero is a request: the limit does not stand in for it as it does for one that is missing. A CPU request "
            "of zero comes to 2 shares, the least there is, so that the container gets next to nothing on a busy "
            "node; a memory request of zero makes it an early victim of eviction. The pod is not Guaranteed."
        ),
        mend="Leave the request out, and the limit stands in for it; or request what the container needs.",
        bad=pod("""  containers:
  - name: app
    image: example.com/app
    resources:
      requests: {cpu: 0, memory: 64Mi}
      limits: {cpu: 500m, memory: 64Mi}
"""),
        change=(("requests: {cpu: 0, memory: 64Mi}", "requests: {cpu: 100m, memory: 64Mi}"),),
    ),
    "NW109": Page(
        title="One container without a memory limit frees the whole pod",
        says="{role} {container} has no memory limit, so that the pod's cgroup has none, whatever the limit of {others}",
        why=(
            "The cgroup of a Burstable pod is limited only if every container, init containers included, has a "
            "limit. Where one has none, nothing bounds what the pod uses as a whole (temporary files in memory, "
            "page cache), and the containers with limits are the ones that are killed."
        ),
        mend="Limit the container's memory, too; or give the pod a limit (`spec.resources.limits`).",
        bad=pod("""  containers:
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
        change=(
            (
                "requests: {cpu: 10m, memory: 16Mi}",
                "requests: {cpu: 10m, memory: 16Mi}\n      limits: {memory: 32Mi}",
            ),
        ),
    ),
}
