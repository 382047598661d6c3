"""The pages of the rules NW110 to NW117: amounts, storage, static pods."""

from nodewright.predict.lint.pages.rule_page import RulePage, pod_manifest

AMOUNT_PAGES = {
    "NW110": RulePage(
        title="Thousandths of a byte",
        message="container {container}: {side}.{resource} of {text} is in thousandths of a byte; did you mean Mi?",
        rationale=(
            "The suffix `m` means thousandths for every resource. `400m` of memory is four tenths of a byte: as a "
            "limit it kills the container at its start (the kernel rounds it to a page), as a request it has no effect."
        ),
        remedy="Write `Mi` (or `M`).",
        bad=pod_manifest("""  containers:
  - name: app
    image: example.com/app
    resources:
      requests: {cpu: 100m, memory: 400m}
"""),
        replacements=(("memory: 400m", "memory: 400Mi"),),
    ),
    "NW111": RulePage(
        title="An amount without digits",
        message="container {container}: {side}.{resource} is {text}, which Kubernetes reads as zero",
        rationale=(
            "The API server's parser takes `Ki`, `m`, `E`, `.`, `+` and `-` for amounts of zero. Usually a template "
            "omitted the number."
        ),
        remedy="Write the number.",
        bad=pod_manifest("""  containers:
  - name: app
    image: example.com/app
    resources:
      requests: {cpu: 100m, memory: Ki}
"""),
        replacements=(("memory: Ki", "memory: 64Ki"),),
    ),
    "NW112": RulePage(
        title="A CPU limit below the smallest CFS quota",
        message="container {container} is limited to {limit} of a CPU, but gets up to 10m",
        rationale=(
            "The smallest quota is 1 ms in each 100 ms, a hundredth of a CPU. The kubelet raises smaller limits to that; "
            "the API still shows, and quotas still count, the written value."
        ),
        remedy="Write 10m, the effective limit.",
        bad=pod_manifest("""  containers:
  - name: app
    image: example.com/app
    resources:
      requests: {cpu: 1m, memory: 16Mi}
      limits: {cpu: 5m, memory: 16Mi}
"""),
        replacements=(("cpu: 5m", "cpu: 10m"),),
    ),
    "NW113": RulePage(
        title="One limit on ephemeral storage bounds all containers",
        message="the limits on ephemeral-storage ({limit} of {limited}) bound the pod as a whole, {others} included",
        rationale=(
            "The kubelet adds up the existing limits on ephemeral storage and compares the sum with the usage of the "
            "whole pod: logs and layers of all containers and its emptyDir volumes. A container without a limit "
            "is thus bounded by those of the others, and its writes can get the pod evicted."
        ),
        remedy="Limit the other containers as well, so that the sum includes them.",
        bad=pod_manifest("""  containers:
  - name: app
    image: example.com/app
    resources:
      requests: {cpu: 100m, memory: 64Mi, ephemeral-storage: 100Mi}
      limits: {memory: 64Mi, ephemeral-storage: 200Mi}
  - name: logs
    image: example.com/logs
    resources:
      requests: {cpu: 100m, memory: 64Mi}
      limits: {memory: 64Mi}
"""),
        replacements=(
            (
                "requests: {cpu: 100m, memory: 64Mi}",
                "requests: {cpu: 100m, memory: 64Mi, ephemeral-storage: 1Gi}",
            ),
            ("limits: {memory: 64Mi}", "limits: {memory: 64Mi, ephemeral-storage: 2Gi}"),
        ),
    ),
    "NW114": RulePage(
        title="An init container that runs beside a sidecar",
        message="the pod requests {now}; {then} would suffice if the init containers ran before the sidecars",
        rationale=(
            "Sidecars listed before an ordinary init container run beside it, so the requests of both are added. "
            "Sidecars listed after it have not started yet. Where the init container is large and does not need the "
            "sidecar, the order alone increases the pod's request."
        ),
        remedy="Put init containers that do not need the sidecars before them.",
        bad=pod_manifest("""  initContainers:
  - name: mesh
    image: example.com/mesh
    restartPolicy: Always
    resources:
      requests: {cpu: 100m, memory: 128Mi}
  - name: migrate
    image: example.com/migrate
    resources:
      requests: {cpu: 1, memory: 2Gi}
  containers:
  - name: app
    image: example.com/app
    resources:
      requests: {cpu: 200m, memory: 256Mi}
"""),
        replacements=(
            (
                """  - name: mesh
    image: example.com/mesh
    restartPolicy: Always
    resources:
      requests: {cpu: 100m, memory: 128Mi}
  - name: migrate
    image: example.com/migrate
    resources:
      requests: {cpu: 1, memory: 2Gi}
""",
                """  - name: migrate
    image: example.com/migrate
    resources:
      requests: {cpu: 1, memory: 2Gi}
  - name: mesh
    image: example.com/mesh
    restartPolicy: Always
    resources:
      requests: {cpu: 100m, memory: 128Mi}
""",
            ),
        ),
    ),
    "NW115": RulePage(
        title="The pod's operating system label differs",
        message="the pod is labelled kubernetes.io/os={label}, but is meant for {wanted}",
        rationale=(
            "When it admits a pod, the kubelet compares the node's operating system with the **label** "
            "`kubernetes.io/os` of the pod, not with its node selector. A pod with another label is rejected "
            "(`PodOSSelectorNodeLabelDoesNotMatch`) on every node."
        ),
        remedy="Remove the label; use `spec.os.name` and a node selector instead.",
        bad=pod_manifest(
            """  nodeSelector: {kubernetes.io/os: linux}
  containers:
  - name: app
    image: example.com/app
    resources: {}
""",
            meta="  labels: {kubernetes.io/os: windows}\n",
        ),
        replacements=(("  labels: {kubernetes.io/os: windows}\n", ""),),
    ),
    "NW116": RulePage(
        title="A memory amount of a static pod that the memory manager rejects",
        message="container {container}: {resource} of {text} is refused by the memory manager: failed to represent quantity as int64",
        rationale=(
            "The static memory policy requires amounts that the kubelet stores as a 64-bit number. `1.5Gi`, `100Ti` and "
            "`1000.0` are stored differently and refused. The API server converts them to their canonical form "
            "(`1536Mi`); a static pod is read from its file unchanged. Pods count as static if they have the "
            "annotation `kubernetes.io/config.source`, or are in a `staticPodPath` or in `/etc/kubernetes/manifests`."
        ),
        remedy="Write the amount as a whole number of the next smaller unit.",
        bad=pod_manifest(
            """  priority: 2000001000
  containers:
  - name: app
    image: example.com/app
    resources:
      requests: {cpu: 1, memory: 1.5Gi}
      limits: {cpu: 1, memory: 1.5Gi}
""",
            meta="  annotations: {kubernetes.io/config.source: file}\n",
        ),
        replacements=(
            ("requests: {cpu: 1, memory: 1.5Gi}", "requests: {cpu: 1, memory: 1536Mi}"),
            ("limits: {cpu: 1, memory: 1.5Gi}", "limits: {cpu: 1, memory: 1536Mi}"),
        ),
    ),
    "NW117": RulePage(
        title="A static pod with a priority class name but no priority",
        message="the priority class {name} of a static pod is not resolved: the pod has no priority",
        rationale=(
            "The API server resolves the name of a priority class to a number, and it does not see a static pod before "
            "the kubelet has started it. Without `priority` the pod has no priority in the kubelet: it cannot "
            "preempt critical pods, and its priority cannot be compared with that of other pods."
        ),
        remedy="Set `priority` in addition to the name, as kubeadm does.",
        bad=pod_manifest(
            """  priorityClassName: system-node-critical
  containers:
  - name: etcd
    image: example.com/etcd
    resources: {}
""",
            name="etcd",
            meta="  annotations: {kubernetes.io/config.source: file}\n",
        ),
        replacements=(
            (
                "  priorityClassName: system-node-critical\n",
                "  priorityClassName: system-node-critical\n  priority: 2000001000\n",
            ),
        ),
    ),
}
