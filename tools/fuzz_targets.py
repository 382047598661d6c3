"""Good input, and the commands that read it: `tools.fuzz` damages it."""

from collections.abc import Mapping

from tools.source import ROOT

POD = b"""apiVersion: v1
kind: Pod
metadata: {name: web, namespace: shop, labels: {app: web}}
spec:
  priorityClassName: system-node-critical
  overhead: {cpu: 10m}
  nodeSelector: {kubernetes.io/os: linux}
  tolerations: [{key: a, operator: Exists, effect: NoExecute}]
  initContainers:
  - {name: proxy, restartPolicy: Always, resources: {requests: {cpu: 100m}}}
  containers:
  - name: main
    ports: [{containerPort: 80, hostPort: 8080, protocol: TCP}]
    resources:
      requests: {cpu: 250m, memory: "1.5Gi", vendor.example/gpu: 1}
      limits: {cpu: "2", memory: 2Gi, hugepages-2Mi: 4Mi, vendor.example/gpu: 1}
---
apiVersion: apps/v1
kind: Deployment
metadata: {name: db}
spec:
  replicas: 3
  selector: {matchLabels: {a: b}}
  template:
    metadata: {labels: {a: b}}
    spec: {containers: [{name: db, resources: &r {requests: {cpu: 1}}}, {name: b, resources: *r}]}
"""

PROFILE = b"""apiVersion: nodewright.dev/v1alpha1
kind: NodeProfile
metadata: {name: small}
spec:
  kubernetesVersion: "1.36"
  machineInfo:
    num_cores: 2
    memory_capacity: 8589934592
    topology:
    - {node_id: 0, memory: 8589934592, hugepages: [{page_size: 2048, num_pages: 8}], cores: [{core_id: 0, thread_ids: [0, 1], socket_id: 0}]}
  kubeletConfiguration: {kubeReserved: {cpu: 100m}, evictionHard: {memory.available: 5%}, cpuManagerPolicy: none}
  devices: {vendor.example/gpu: [{id: gpu0, numaNodes: [0], healthy: true}]}
  labels: {zone: a}
  taints: [{key: a, value: b, effect: NoExecute}]
  pods: [{metadata: {name: old, namespace: default}, spec: {containers: [{name: c, resources: {requests: {cpu: 500m}}}]}}]
"""

CONFIGURATION = b"""apiVersion: kubelet.config.k8s.io/v1beta1
kind: KubeletConfiguration
evictionHard: {memory.available: 100Mi, nodefs.available: 10%}
kubeReserved: {cpu: 100m, memory: 200Mi}
systemReserved: {cpu: 100m}
cpuManagerPolicy: static
reservedSystemCPUs: "0-1"
topologyManagerPolicy: restricted
featureGates: {PodLevelResources: true}
syncFrequency: 1m0s
maxPods: 110
"""

LSCPU = b"""{"cpus": [
 {"cpu": 0, "node": 0, "socket": 0, "core": 0, "l1d:l1i:l2:l3": "0:0:0:0", "online": true},
 {"cpu": 1, "node": 0, "socket": 0, "core": 1, "l1d:l1i:l2:l3": "1:1:1:0", "online": true}]}
"""

USAGE = b"""apiVersion: nodewright.dev/v1alpha1
kind: NodeUsage
spec:
  available: {memory.available: 100Mi, nodefs.available: 3Gi, nodefs.inodesFree: 5}
  capacity: {nodefs.inodesFree: 100}
  pods:
  - {pod: shop/web, memory: 2Gi, rootfs: 1Gi, logs: 20Mi, inodes: 500, processes: 64}
  - {pod: shop/db, volume: data, used: 5Gi}
"""

_E = "examples"
_FLEET = f"--nodes {_E}/fleet/nodes.csv"
_PODS = f"--pods {_E}/fleet/pods.csv"
_USAGE = f"evict --node {_E}/eviction/node.yaml --usage {_E}/eviction/summary.json"
_W3 = f"{_E}/worker-3"
_AGENT = "agent --dry-run"
_CLUSTER = f"--configz {_W3}/configz.json --pods {_W3}/pods.json --node-object {_W3}/node.json --nrt {_W3}/topology.yaml"
_DEVICES = "device-plugins/kubelet_internal_checkpoint"
_POD_USAGE = b"name,namespace,at,memory\njob-1,default,0,1Gi\njob-1,default,30,2Gi\n"

_LINES: Mapping[str, tuple[str, str]] = {
    "pods to explain": ("explain --node vm-4 -f FILE -o json", f"{_E}/numa/*pods.yaml"),
    "pods to preempt for": (f"preempt --node {_E}/preemption/node.yaml -f FILE -o json", f"{_E}/preemption/c*.yaml"),
    "pods to resize": (f"admit --resize --node {_E}/resize/node.yaml -f FILE -o json", f"{_E}/resize/pods.yaml"),
    "node to explain on": (f"explain --node FILE -f {_E}/agent/pinned.yaml -o json", f"{_E}/numa/*node.yaml"),
    "manifests to lint": ("lint -f FILE -o json", f"{_E}/lint/*.yaml"),
    "manifests to lint for SARIF": ("lint -f FILE -o sarif", f"{_E}/manifests/*"),
    "kubelet configuration to lint": (
        f"lint -f {_E}/agent/web.yaml --kubelet-config FILE -o json",
        f"{_E}/kubelet/*.yaml",
    ),
    "manifests under a quota": ("quota -f FILE -o json", f"{_E}/quota/**/*.yaml"),
    "cgroups of a pod": (f"cgroups --node {_E}/cgroups/node.yaml -f FILE -o json", f"{_E}/cgroups/*.yaml"),
    "a cgroup file": (
        f"cgroups --node {_E}/cgroups/node.yaml -f {_E}/cgroups/running.yaml --diff TREE:{_E}/cgroups/tree:memory.max",
        f"{_E}/cgroups/tree/**/cpu.max",
    ),
    "table of nodes": (f"fleet run --nodes TABLE {_PODS} -o json", f"{_E}/fleet/nodes.csv"),
    "table of pods": (f"fleet run {_FLEET} --pods TABLE -o json", f"{_E}/fleet/pods.csv"),
    "nodes of a fleet": (f"fleet run --nodes FILE {_PODS} -o json", f"{_E}/fleet/nodes.yaml"),
    "pods of a fleet": (f"fleet run {_FLEET} --pods FILE -o json", f"{_E}/fleet/pods.yaml"),
    "probe of a fleet": (f"fleet run {_FLEET} {_PODS} --probe FILE -o json", f"{_E}/fleet/probe.yaml"),
    "configuration of a fleet": (
        f"fleet run {_FLEET} {_PODS} --kubelet-config FILE -o json",
        f"{_E}/kubelet/*.yaml",
    ),
    "forecast": (f"{_USAGE} --timeline --growth FILE -o json", f"{_E}/eviction/forecast.yaml"),
    "recorded growth": (f"{_USAGE} --timeline --growth TABLE -o json", f"{_E}/eviction/recorded.csv"),
    "pods of a cluster": (f"node capture {_CLUSTER} --pods FILE", f"{_W3}/pods.json"),
    "node of a cluster": (f"node capture {_CLUSTER} --node-object FILE", f"{_W3}/node.json"),
    "topology of a cluster": (f"node capture {_CLUSTER} --nrt FILE", f"{_W3}/topology.yaml"),
    "configz of a cluster": (f"node capture {_CLUSTER} --configz FILE", f"{_W3}/configz.json"),
    "configuration of an agent": (f"{_AGENT} --node vm-4 --config FILE", f"{_E}/kubelet/*.yaml"),
    "node of an agent": (f"{_AGENT} --node FILE --workload-dir {_E}/agent", f"{_E}/numa/*node.yaml"),
    "pods of an agent": (f"{_AGENT} --node vm-4 --workload-dir TREE:{_E}/agent:pinned.yaml", f"{_E}/agent/*.yaml"),
    "failed pods": ("explain --node vm-4 --pod FILE -o json", f"{_E}/failed/*.yaml"),
    **{
        f"{file} to rehearse": (
            f"rehearse --node {_E}/rehearsal/worker-3.yaml --kubelet-root TREE:{_W3}/kubelet:{file} -o json",
            f"{_W3}/kubelet/{file}",
        )
        for file in ("cpu_manager_state", "memory_manager_state", "allocated_pods_state", "config.yaml")
    },
    "devices to rehearse": (
        f"rehearse --node {_E}/rehearsal/worker-3.yaml --kubelet-root TREE:{_W3}/kubelet:{_DEVICES} -o json",
        f"{_W3}/kubelet/{_DEVICES}",
    ),
}  # fmt: skip


def file_targets() -> Mapping[str, tuple[str, tuple[bytes, ...]]]:
    """Command lines and good input by name; FILE and TABLE stand for the damaged input."""
    usage = f"fleet run {_FLEET} {_PODS} --usage TABLE -o json"
    return {
        "usage of a fleet": (usage, (_POD_USAGE,)),
        **{name: (line, _samples(pattern)) for name, (line, pattern) in _LINES.items()},
    }


def _samples(pattern: str) -> tuple[bytes, ...]:
    samples = tuple(path.read_bytes() for path in sorted(ROOT.glob(pattern)) if path.is_file())
    assert samples, pattern
    return samples
