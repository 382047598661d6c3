"""The pages of the rules NW110 to NW117: amounts, storage, static pods."""

from nodewright.render.lint.page import Page, pod

AMOUNT_PAGES = {
    "NW110": Page(
        title="Thousandths of a byte",
        says="container {container}: {side}.{resource} of {text} is in thousandths of a byte; was Mi meant?",
        why=(
            "The suffix `m` means thousandths for every resource. `400m` of memory is four tenths of a byte: as a "
            "limit it kills the container at its start (the kernel rounds it to a page), as a request it is nothing."
        ),
        mend="Write `Mi` (or `M`).",
        bad=pod("""  containers:
  - name: app
    image: example.com/app
    resources:
      requests: {cpu: 100m, memory: 400m}
"""),
        change=(("memory: 400m", "memory: 400Mi"),),
    ),
    "NW111": Page(
        title="An amount without a digit",
        says="container {container}: {side}.{resource} is {text}, which Kubernetes reads as zero",
        why=(
            "The API server's parser takes `Ki`, `m`, `E`, `.`, `+` and `-` for amounts of zero. Mostly a template left "
            "the number out."
        ),
        mend="Write the number.",
        bad=pod("""  containers:
  - name: app
    image: example.com/app
    resources:
      requests: {cpu: 100m, memory: Ki}
"""),
        change=(("memory: Ki", "memory: 64Ki"),),
    ),
    "NW112": Page(
        title="A CPU limit below what the kernel can hold to",
        says="container {container} is limited to {limit} of a CPU, and gets up to 10m",
        why=(
            "The least quota is 1 ms in each 100 ms, a hundredth of a CPU. The kubelet raises smaller limits to that; "
            "the API still shows, and quotas still count, what is written."
        ),
        mend="Write 10m, so that the file says what happens.",
        bad=pod("""  containers:
  - name: app
    image: example.com/app
    resources:
      requests: {cpu: 1m, memory: 16Mi}
      limits: {cpu: 5m, memory: 16Mi}
"""),
        change=(("cpu: 5m", "cpu: 10m"),),
    ),
    "NW113": Page(
        title="One limit on ephemeral storage bounds all containers",
        says="the limits on ephemeral-storage ({limit} of {limited}) bound the pod as a whole, {others} included",
        why=(
            "The kubelet adds up the limits on ephemeral storage that there are, and compares the sum with what the "
            "whole pod uses: logs and layers of all containers and its emptyDir volumes. A container without a limit "
            "is thus held to those of the others, and the pod is evicted for what it writes."
        ),
        mend="Limit the other containers as well, so that the sum has room for them.",
        bad=pod("""  containers:
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
        change=(
            (
                "requests: {cpu: 100m, memory: 64Mi}",
                "requests: {cpu: 100m, memory: 64Mi, ephemeral-storage: 1Gi}",
            ),
            ("limits: {memory: 64Mi}", "limits: {memory: 64Mi, ephemeral-storage: 2Gi}"),
        ),
    ),
    "NW114": Page(
        title="An init container that runs beside a sidecar",
        says="the pod asks for {now}, and {then} would do if the init containers ran before the sidecars",
        why=(
            "Sidecars that stand before an ordinary init container run beside it, so that both are added up. Those "
            "that stand behind it are not there yet. Where the init container is large and does not need the "
            "sidecar, the order alone makes the pod ask for more."
        ),
        mend="Put init containers that do not need the sidecars before them.",
        bad=pod("""  initContainers:
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
        change=(
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
    "NW115": Page(
        title="The pod's own label for the operating system differs",
        says="the pod is labelled kubernetes.io/os={label}, though it is for {wanted}",
        why=(
            "When it admits a pod, the kubelet compares the node's operating system with the **label** "
            "`kubernetes.io/os` of the pod, not with its node selector. A pod with another label is turned away "
            "(`PodOSSelectorNodeLabelDoesNotMatch`) wherever the scheduler sends it."
        ),
        mend="Take the label away; `spec.os.name` and a node selector say what is meant.",
        bad=pod(
            """  nodeSelector: {kubernetes.io/os: linux}
  containers:
  - name: app
    image: example.com/app
""",
            meta="  labels: {kubernetes.io/os: windows}\n",
        ),
        change=(("  labels: {kubernetes.io/os: windows}\n", ""),),
    ),
    "NW116": Page(
        title="A static pod's memory that the memory manager cannot read",
        says="container {container}: {resource} of {text} is refused by the memory manager: failed to represent quantity as int64",
        why=(
            "The static memory policy wants amounts that upstream keeps as a 64-bit number. `1.5Gi`, `100Ti` and "
            "`1000.0` are kept otherwise and refused. From the API server they come in their canonical form (`1536Mi`) "
            "and do no harm; a static pod is read from its file as it is. Pods count as static if they have the "
            "annotation `kubernetes.io/config.source`, or lie in a `staticPodPath` or in `/etc/kubernetes/manifests`."
        ),
        mend="Write the amount as a whole number of the next smaller unit.",
        bad=pod(
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
        change=(
            ("requests: {cpu: 1, memory: 1.5Gi}", "requests: {cpu: 1, memory: 1536Mi}"),
            ("limits: {cpu: 1, memory: 1.5Gi}", "limits: {cpu: 1, memory: 1536Mi}"),
        ),
    ),
    "NW117": Page(
        title="A static pod with the name of a priority class and no priority",
        says="nobody looks up the priority class {name} of a static pod: it has no priority",
        why=(
            "The API server turns the name of a priority class into a number, and it never sees a static pod before "
            "the kubelet has started it. Without `priority` the pod has none as far as the kubelet goes: it can push out "
            "no critical pod, and no other pod can be compared with it."
        ),
        mend="Write the number beside the name, as kubeadm does.",
        bad=pod(
            """  priorityClassName: system-node-critical
  containers:
  - name: etcd
    image: example.com/etcd
""",
            name="etcd",
            meta="  annotations: {kubernetes.io/config.source: file}\n",
        ),
        change=(
            (
                "  priorityClassName: system-node-critical\n",
                "  priorityClassName: system-node-critical\n  priority: 2000001000\n",
            ),
        ),
    ),
}
