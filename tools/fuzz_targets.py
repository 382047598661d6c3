"""Good input, and the commands and readers that take it, files and answers of API servers: `tools.fuzz` damages it."""

import asyncio
import json
import tempfile
from collections.abc import AsyncIterator, Callable, Mapping
from contextlib import suppress
from pathlib import Path

import msgspec

from nodewright.cluster.client.access import AccessOptions, ExecPlugin
from nodewright.cluster.client.cluster_api import ApiError, json_error
from nodewright.cluster.client.kubeconfig import load_access
from nodewright.cluster.client.list_watch import ObjectPage, decode_event, decode_page, lines_of
from nodewright.cluster.client.request_credentials import run_plugin
from nodewright.cluster.client.tls import tls_context
from nodewright.cluster.objects.node_sources import read_cluster_node
from nodewright.cluster.objects.object_names import KINDS, ClusterName
from nodewright.cluster.objects.reader import Selection, pod_event_sentences, read_objects
from nodewright.documents.formats.manifests import workloads_from
from nodewright.documents.profiles.node_export import (
    bytes_digest,
    encode_node_export,
    node_export,
    read_node_export,
)
from nodewright.documents.profiles.node_profiles import load_profile
from nodewright.model.errors import JSON_ERRORS, InputError
from nodewright.model.kubernetes.objects import ObjectMeta, Pod
from nodewright.model.values.instant import Instant
from nodewright.scheduling.verdicts.export_reader import ExportReader
from nodewright.scheduling.verdicts.extender_protocol import decode_binding, decode_call, decode_preemption
from nodewright.scheduling.verdicts.tracked_cluster import TrackedCluster
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
_OTHER = f"{_E}/other-systems"
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
    **{
        f"nodes of {name} that do not exist yet": (f"fit --nodes FILE -f {_E}/fit/four-gpus.yaml -o json", f"{_OTHER}/{name}.yaml")
        for name in ("karpenter", "machine-deployments")
    },
    "queues of Kueue": (f"fit --nodes {_E}/fit/cluster.yaml -f FILE -o json", f"{_OTHER}/queue.yaml"),
    "virtual machines": ("admit --node vm-4 -f FILE -o json", f"{_OTHER}/*machine.yaml"),
    "recommendations": (
        f"admit --resize --node {_OTHER}/autoscaled-node.yaml -f FILE -o json",
        f"{_OTHER}/recommendations.yaml",
    ),
    "what decides about CPUs": (f"admit --node FILE -f {_E}/agent/pinned.yaml -o json", f"{_OTHER}/balloons-node.yaml"),
    "nodes to drain": ("drain node/worker-1 -f FILE -o json", f"{_E}/drain/shop.yaml"),
    "nodes to fit on": ("fit --nodes FILE -o json", f"{_E}/fit/cluster.yaml"),
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


Reader = Callable[[bytes], object]
_WORKER = ROOT / "examples/worker-3"
_EXEC = "client.authentication.k8s.io/v1"
_NODE = "worker-3"

KUBECONFIG = b"""apiVersion: v1
kind: Config
current-context: shop
clusters:
- {name: shop, cluster: {server: "https://127.0.0.1:6443", tls-server-name: api, insecure-skip-tls-verify: true, proxy-url: "http://127.0.0.1:3128"}}
contexts:
- {name: shop, context: {cluster: shop, user: me, namespace: web}}
users:
- {name: me, user: {token: abc, as: you, as-groups: [a], as-user-extra: {b: [c]}}}
- {name: plugin, user: {exec: {apiVersion: client.authentication.k8s.io/v1, command: "true", args: [a], env: [{name: A, value: b}], interactiveMode: Never}}}
"""
CREDENTIAL = json.dumps(
    {
        "kind": "ExecCredential",
        "apiVersion": _EXEC,
        "status": {"token": "t", "expirationTimestamp": "2026-05-01T10:00:00Z"},
    }
).encode()
EVENTS = json.dumps(
    {
        "kind": "EventList",
        "apiVersion": "v1",
        "metadata": {"resourceVersion": "7"},
        "items": [
            {
                "metadata": {"name": "a"},
                "reason": "Failed",
                "message": "no",
                "count": 2,
                "source": {"component": "kubelet"},
                "lastTimestamp": "2026-05-01T10:00:00Z",
            }
        ],
    }
).encode()
WATCH = b"""{"type":"ADDED","object":{"kind":"Pod","metadata":{"name":"a","uid":"u","resourceVersion":"7"}}}
{"type":"BOOKMARK","object":{"kind":"Pod","metadata":{"resourceVersion":"9"}}}
{"type":"ERROR","object":{"kind":"Status","code":410,"reason":"Expired","message":"too old","details":{"retryAfterSeconds":3}}}
"""

_CALLED_POD = {
    "metadata": {"name": "web", "namespace": "shop", "uid": "u1"},
    "spec": {"containers": [{"name": "main", "resources": {"requests": {"cpu": "1", "memory": "1Gi"}}}]},
}
_FILTER_CALL = json.dumps({"Pod": _CALLED_POD, "Nodes": None, "NodeNames": ["a", "b"]}).encode()
_FULL_CALL = json.dumps(
    {"Pod": _CALLED_POD, "Nodes": {"items": [{"metadata": {"name": "a"}}]}, "NodeNames": None}
).encode()
_PREEMPT_CALL = json.dumps(
    {
        "Pod": _CALLED_POD,
        "NodeNameToMetaVictims": {"a": {"Pods": [{"UID": "u2"}], "NumPDBViolations": 1}},
    }
).encode()
_BIND_CALL = json.dumps({"PodName": "web", "PodNamespace": "shop", "PodUID": "u1", "Node": "a"}).encode()


class _Answers:
    """An API server that answers every request whose path has a text with the same bytes."""

    def __init__(self, answers: Mapping[str, bytes]) -> None:
        self._answers = answers

    async def get(self, path: str, query: Mapping[str, str] | None = None) -> bytes:
        for part, content in self._answers.items():
            if part in path:
                return content
        raise ApiError("GET", f"{path} {query or ''}", "404 Not Found", status=404)

    async def list_pages(
        self, path: str, *, label_selector: str = "", field_selector: str = "", page_size: int = 500
    ) -> AsyncIterator[ObjectPage]:
        content = await self.get(path, {"selectors": f"{label_selector} {field_selector} {page_size}"})
        try:
            page, _ = decode_page(content)
        except JSON_ERRORS as error:
            raise json_error("GET", path, "", error) from None
        yield page


def cluster_targets() -> Mapping[str, tuple[Reader, tuple[bytes, ...]]]:
    """Readers and good input by name; they refuse with InputError and HostError."""
    parts = {
        "proxy/configz": (_WORKER / "configz.json").read_bytes(),
        "proxy/pods": (_WORKER / "pods.json").read_bytes(),
        "noderesourcetopologies": (_WORKER / "topology.yaml").read_bytes(),
        "/pods": (_WORKER / "pods.json").read_bytes(),
        "/nodes/": (_WORKER / "node.json").read_bytes(),
    }
    pods = parts["/pods"]
    recorded = (ROOT / "tests/golden/errors/workloads.jsonl").read_bytes().splitlines()
    return {
        **{
            f"{part} of an API server": (_node_reader(parts, part), (content,))
            for part, content in parts.items()
        },
        "list of an API server": (_read_list, (pods, EVENTS)),
        "events of an API server": (_read_events, (EVENTS,)),
        "watch of an API server": (_read_watch, (WATCH,)),
        "filter call of a scheduler": (decode_call, (_FILTER_CALL, _FULL_CALL)),
        "preempt call of a scheduler": (decode_preemption, (_PREEMPT_CALL,)),
        "bind call of a scheduler": (decode_binding, (_BIND_CALL,)),
        "kubeconfig": (_read_kubeconfig, (KUBECONFIG,)),
        "credential of a plugin": (_read_credential, (CREDENTIAL,)),
        "workloads": (
            _read_workloads,
            tuple(json.dumps(json.loads(line)["object"]).encode() for line in recorded),
        ),
        "export of a node": (lambda content: read_node_export(content, "export.json"), (_export(),)),
        "export after another one": (_read_next_export, (_export(),)),
    }


def _node_reader(parts: Mapping[str, bytes], part: str) -> Reader:
    return lambda content: asyncio.run(read_cluster_node(_Answers({**parts, part: content}), _NODE))


def _read_list(content: bytes) -> None:
    names = [ClusterName(kind=KINDS[kind], name="", word=kind) for kind in ("pods", "deploy")]
    asyncio.run(read_objects(_Answers({"": content}), names, Selection(namespace="")))


def _read_events(content: bytes) -> None:
    pod = Pod(metadata=ObjectMeta(name="web", namespace="shop"))
    asyncio.run(pod_event_sentences(_Answers({"": content}), pod))


def _read_watch(content: bytes) -> None:
    async def chunks() -> AsyncIterator[bytes]:
        for start in range(0, len(content), 50):
            yield content[start : start + 50]

    async def read() -> None:
        try:
            async for line in lines_of(chunks()):
                with suppress(ApiError):  # As for an event that states an error.
                    decode_event(line, "/pods")
        except EOFError:
            return

    asyncio.run(read())


def _read_kubeconfig(content: bytes) -> None:
    with tempfile.TemporaryDirectory() as directory:
        path = Path(directory, "config")
        path.write_bytes(content)
        access = load_access(AccessOptions(kubeconfig=str(path)), {"HOME": directory})
    tls_context(access.tls, None, None)


def _read_workloads(content: bytes) -> None:
    with suppress(InputError):  # Most of the recorded ones are refused.
        workloads_from(content, "web.json")


def _read_credential(content: bytes) -> None:
    with tempfile.NamedTemporaryFile() as file:
        file.write(content)
        file.flush()
        plugin = ExecPlugin(
            command="cat", arguments=(file.name,), api_version=_EXEC, interactive_mode="Never"
        )
        asyncio.run(run_plugin(plugin, 5.0))


def _read_next_export(content: bytes) -> None:
    """Reads the content after a valid export of the node, with a digest that fits its profile."""
    reader = ExportReader()
    reader.read(_export(), "export.json")
    try:
        document = msgspec.json.decode(content)
        profile = msgspec.json.encode(document["profile"], order="sorted")
    except (msgspec.DecodeError, UnicodeDecodeError, RecursionError, KeyError, TypeError):
        return  # Without a profile it is read as a first one.
    content = msgspec.json.encode(
        {**document, "digest": bytes_digest(profile), "profile": msgspec.Raw(profile)}
    )
    cluster = TrackedCluster()
    export = reader.read(content, "export.json")
    cluster.put_export("n", export.profile, generation=export.generation, now_s=0.0)


def _export() -> bytes:
    profile = load_profile(str(ROOT / "examples/rehearsal/worker-3.yaml"))
    observed = Instant.parse("2026-05-01T10:00:00Z")
    return encode_node_export(node_export(profile, generation=1, observed_time=observed))
