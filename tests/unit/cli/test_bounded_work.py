"""A small file never costs much: what asks for more is refused, with the limit and its option."""

import gzip
import json
import os
from collections.abc import Callable, Mapping
from functools import partial
from pathlib import Path

import pytest
from tests.support.limited import run_limited

from tools.source import ROOT

NODES, PODS = f"--nodes {ROOT}/examples/fleet/nodes.csv", f"--pods {ROOT}/examples/fleet/pods.csv"
USAGE = f"evict --node {ROOT}/examples/eviction/node.yaml --usage {ROOT}/examples/eviction/summary.json"
CAPTURE = "node capture --configz @configz.json --pods @pods.json --node-object @node.json --nrt @nrt.yaml"
Content = bytes | str | Path | None
"""Bytes or text, what a link leads to, or None for a FIFO."""

PROFILE = """apiVersion: nodewright.dev/v1alpha1
kind: NodeProfile
metadata: {{name: a}}
spec:
  kubernetesVersion: v1.36.2
  rootFsCapacity: 1
  machineInfo: {{num_cores: 1, num_physical_cores: 1, num_sockets: 1, memory_capacity: 1073741824, topology: [{{
    node_id: {node}, memory: 1073741824, distances: [10], cores: [{{core_id: 0, socket_id: 0, thread_ids: [{thread}]}}]}}]}}
  allocations: [{{pod: a, container: b, cpus: "{cpus}"}}]
"""
DEPLOYMENT = """apiVersion: apps/v1
kind: Deployment
metadata: {name: a}
spec:
  replicas: 2000000000
  selector: {matchLabels: {a: b}}
  template:
    metadata: {labels: {a: b}}
    spec: {containers: [{name: a, image: x}]}
"""
JOB = (
    DEPLOYMENT.replace("apps/v1", "batch/v1")
    .replace("Deployment", "Job")
    .replace("replicas", "parallelism")
    .replace("  selector: {matchLabels: {a: b}}\n", "")
    .replace("spec: {containers", "spec: {restartPolicy: Never, containers")
)
LARGE_CPU = (
    '{"id": "a", "family": "cpu-topology", "input": {"machine": {"num_cores": 1, "topology": [{"node_id": 0, "memory": 1, '
    '"cores": [{"core_id": 0, "socket_id": 0, "thread_ids": [30000000000]}]}]}}, "expect": {}}'
)
POD = "{apiVersion: v1, kind: Pod, metadata: {name: a%d}, spec: {containers: [{name: a, image: x}]}}\n"
FORECAST = """apiVersion: nodewright.dev/v1alpha1
kind: UsageForecast
spec: {duration: 900000h, growth: [{pod: "", rate: 1}]}
"""


def captured(cpu: str = "8", nic: str = "1", zone_nic: str = "1", zone: str = "0") -> dict[str, Content]:
    """The files of a node of a cluster."""
    nrt = f"""apiVersion: topology.node.k8s.io/v1alpha2
kind: NodeResourceTopology
metadata: {{name: w}}
zones:
- name: node-{zone}
  type: Node
  resources: [{{name: example.com/nic, capacity: {zone_nic}, allocatable: 1, available: 1}}]
"""
    amounts = {"memory": "8Gi", "pods": "110", "ephemeral-storage": "1Gi", "example.com/nic": nic, "cpu": cpu}
    status = {"nodeInfo": {"kubeletVersion": "v1.36.0"}, "capacity": amounts, "allocatable": {"cpu": "8"}}
    node = {"apiVersion": "v1", "kind": "Node", "metadata": {"name": "w"}, "status": status}
    return {
        "configz.json": '{"kubeletconfig":{}}',
        "pods.json": '{"apiVersion":"v1","kind":"List","items":[]}',
        "node.json": json.dumps(node),
        "nrt.yaml": nrt,
    }


def listed(item: str, count: int) -> str:
    return '{"apiVersion":"v1","kind":"List","items":[' + ",".join([item] * count) + "]}"


def packed(unit: bytes, count: int, head: bytes = b"") -> bytes:
    return gzip.compress(head + unit * count, 1)


def table(line: str, count: int, head: str = "name,cpu,memory\n") -> str:
    return head + "".join(line.format(number) for number in range(count))


def policies_and_pods(kind: str, spec: str) -> dict[str, Content]:
    """2,000 policies of a namespace, and 2,000 pods in it."""
    policy = f"{{apiVersion: v1, kind: {kind}, metadata: {{name: a%d}}, spec: {spec}}}\n"
    return {"x.yaml": "---\n".join(text % number for text in (policy, POD) for number in range(2_000))}


Case = tuple[str, Callable[[], Mapping[str, Content]], str]
ROOT_FILES = ("cpu_manager_state", "memory_manager_state", "allocated_pods_state", "config.yaml")
CASES: Mapping[str, Case] = {
    "a CPU's number": (
        "node show --node @n.yaml",
        lambda: {"n.yaml": PROFILE.format(node=0, thread=30_000_000_000, cpus=0)},
        "neither the uid nor the namespace/name of a pod",
    ),
    "a negative number of a CPU": (
        "node show --node @n.yaml",
        lambda: {"n.yaml": PROFILE.format(node=0, thread=-1, cpus=0)},
        "a CPU's number must be 0 to 65535",
    ),
    "a NUMA node's number": (
        "node show --node @n.yaml",
        lambda: {"n.yaml": PROFILE.format(node=10**18, thread=0, cpus=0)},
        "a NUMA node's number must be 0 to 65535",
    ),
    "a CPU list with many digits": (
        "node show --node @n.yaml",
        lambda: {"n.yaml": PROFILE.format(node=0, thread=0, cpus="9" * 5000)},
        "goes beyond 65535",
    ),
    "devices of a zone": (CAPTURE, partial(captured, zone_nic="50M"), "must be 0 to 65536"),
    "devices of a node": (CAPTURE, partial(captured, nic="2147483647"), "at most 65536 devices"),
    "CPUs of a node": (CAPTURE, partial(captured, cpu="37476106240"), "must be 0 to 65536"),
    "a NUMA node of reserved memory": (
        CAPTURE.replace(" --nrt @nrt.yaml", ""),
        lambda: {
            **captured(),
            "configz.json": json.dumps({"kubeletconfig": {"reservedMemory": [{"numaNode": 2**31 - 1}]}}),
        },
        "Linux has at most 1024 NUMA nodes",
    ),
    "a zone's number": (CAPTURE, partial(captured, zone="9" * 5000), "must end in its number"),
    "digits before the end of a zone's name": (CAPTURE, partial(captured, zone="9" * 500_000 + "x"), "must end in its number"),
    **{
        f"{kind}s for many pods, {command}": (
            f"{command} -f @x.yaml",
            partial(policies_and_pods, kind, spec),
            f"namespace default has 2000 {kind}s; the limit is 100",
        )
        for kind, spec in (
            ("LimitRange", "{limits: [{type: Container, default: {cpu: 1}}]}"),
            ("ResourceQuota", "{hard: {cpu: 1}}"),
        )
        for command in ("requests", "quota", "lint")
    },
    "a key of brackets": (
        "requests -f @b.json",
        lambda: {"b.json": json.dumps({"apiVersion": "v1", "kind": "Pod", "metadata": {"[" * 500_000: 1}})},
        "unknown field",
    ),
    "replicas": (f"fleet run {NODES} --pods @d.yaml", lambda: {"d.yaml": DEPLOYMENT}, "--max-replicas"),
    "replicas to minimise": (
        f"fleet minimise {NODES} --pods @d.yaml",
        lambda: {"d.yaml": DEPLOYMENT},
        "--max-replicas",
    ),
    "parallel pods": (f"fleet run {NODES} --pods @d.yaml", lambda: {"d.yaml": JOB}, "--max-replicas"),
    "pods of DaemonSets": (
        "fleet run --nodes @n.csv --pods @d.yaml --max-replicas 5",
        lambda: {
            "n.csv": table("n{},1,1Gi\n", 10),
            "d.yaml": DEPLOYMENT.replace("Deployment", "DaemonSet").replace("  replicas: 2000000000\n", ""),
        },
        "--max-replicas",
    ),
    "a packed table without lines": (
        f"fleet run {NODES} --pods @p.csv.gz",
        lambda: {"p.csv.gz": packed(b"\0" * 1000, 70_000)},
        "the line has more than",
    ),
    "a packed table": (
        f"fleet run --nodes @n.csv.gz {PODS} --max-unpacked-size 128Ki",
        lambda: {"n.csv.gz": packed(b"a,1,1Gi\n", 1_000_000, b"name,cpu,memory\n")},
        "--max-unpacked-size",
    ),
    "a packed manifest": (
        "fleet run -f @p.json.gz",
        lambda: {"p.json.gz": packed(b"x" * 1000, 70_000, b'{"a":"')},
        "--max-unpacked-size",
    ),
    "packed vectors": ("verify @v.jsonl.gz", lambda: {"v.jsonl.gz": packed(b"\n" * 1000, 70_000)}, "the limit"),
    "a packed vector": ("verify @v.jsonl.gz", lambda: {"v.jsonl.gz": packed(b"1" * 1000, 70_000)}, "the limit"),
    "a CPU's number in a vector": (
        "verify @v.jsonl",
        lambda: {"v.jsonl": LARGE_CPU},
        "an id must be 0 to 65535",
    ),
    "vectors without an end": ("verify /dev/zero", dict, "the limit"),
    "machines without an end": ("verify --machines /dev/zero /dev/null", dict, "which is the limit"),
    "a table without an end": (
        f"fleet run --nodes @n.csv {PODS}",
        lambda: {"n.csv": Path("/dev/zero")},
        "is not a regular file",
    ),
    "items without anything": ("requests -f @x.json", lambda: {"x.json": listed("{}", 50_000)}, "more faults"),
    "items to lint": ("lint -f @x.json", lambda: {"x.json": listed("1", 50_000)}, "more faults"),
    "documents": (
        f"fleet run {NODES} --pods @x.yaml",
        lambda: {"x.yaml": "---\n".join(["a: 1\n"] * 20_000)},
        "more faults",
    ),
    "pods to explain": (
        "explain --node vm-4 -f @x.yaml",
        lambda: {"x.yaml": "---\n".join(POD % number for number in range(600))},
        "explains at most 500 pods at a time, not 600: name some with --pod",
    ),
    "columns": (
        f"fleet run {NODES} --pods @p.csv",
        lambda: {"p.csv": "name,cpu,memory," + ",".join(["a/b"] * 20_000)},
        "has 20003 columns; the limit is 1000",
    ),
    "columns of usage": (
        f"evict --node {ROOT}/examples/eviction/node.yaml --usage @u.csv",
        lambda: {"u.csv": ",".join(f"a{number}" for number in range(20_000))},
        "more faults",
    ),
    "a cell of growth": (
        f"{USAGE} --timeline --growth @g.csv",
        lambda: {"g.csv": f"time,pod,memory\n{'x' * 131_073},a,1\n"},
        "not valid CSV",
    ),
    "a long forecast": (f"{USAGE} --timeline --growth @f.yaml", lambda: {"f.yaml": FORECAST}, "shorten --duration"),
    "a long duration": (f"{USAGE} --advise --growth system=1Mi/s --duration 900000h", dict, "shorten --duration"),
    "the shape in a label": (
        f"fleet run --nodes @n.csv {PODS} --shapes label:shape",
        lambda: {"n.csv": "name,cpu,memory,labels\na,4,8Gi,shape=99x99x999x9\n"},
        "no such shape",
    ),
    "different machines": (
        f"fleet run --nodes @n.csv {PODS} --max-machine-cpus 700",
        lambda: {"n.csv": table("n{0},4,{0}1Gi\n", 20)},
        "n.csv:12, Node n10: the different machines of the nodes up to this one have more than 700 CPUs",
    ),
    **{
        f"{file} {kind}": (
            f"{command} --kubelet-root @k",
            partial(dict, [(f"k/{file}", content)]),
            "is not a regular file",
        )
        for command in ("rehearse --node vm-4", "node capture --catalogue vm-4")
        for file in ROOT_FILES
        for kind, content in (("without an end", Path("/dev/zero")), ("that nobody writes to", None))
    },
}  # fmt: skip


@pytest.mark.slow
@pytest.mark.parametrize("name", CASES)
def test_a_small_file_that_asks_for_much_is_refused(tmp_path: Path, name: str) -> None:
    command, files, message = CASES[name]
    for file, content in files().items():
        path = tmp_path / file
        path.parent.mkdir(exist_ok=True)
        match content:
            case None:
                os.mkfifo(path)
            case Path():
                path.symlink_to(content)
            case bytes():
                path.write_bytes(content)
            case _:
                path.write_text(content)
    ended = run_limited(command.replace("@", f"{tmp_path}/").split(), tmp_path / "output")
    assert ended.is_bounded, ended
    assert message in ended.output
    assert ended.code == 1
    assert len(ended.output) < 20_000


@pytest.mark.parametrize("numa", [-1, 65_536, 2**31 - 1])
def test_reserved_memory_of_an_impossible_node_is_linted(tmp_path: Path, numa: int) -> None:
    (tmp_path / "k.yaml").write_text(
        "apiVersion: kubelet.config.k8s.io/v1beta1\nkind: KubeletConfiguration\nmemoryManagerPolicy: Static\n"
        f"reservedMemory: [{{numaNode: {numa}, limits: {{memory: 1Gi}}}}]\n"
    )
    ended = run_limited(["lint", "-f", str(tmp_path / "k.yaml")], tmp_path / "output")
    assert ended.is_bounded, ended
    assert "the kubelet does not start" in ended.output
