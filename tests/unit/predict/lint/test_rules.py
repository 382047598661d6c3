"""Cases with and without findings beyond the examples of the rules' pages."""

from pathlib import Path

import pytest
import yaml

from nodewright.documents.formats.inventory import load_inventory
from nodewright.predict.lint.lint_input import load_lint_input
from nodewright.predict.lint.lint_report import LintFinding
from nodewright.predict.lint.lint_run import lint_result
from nodewright.predict.lint.rules import ALL_RULES


def pod_manifest(spec: str, *, meta: str = "") -> str:
    """A Pod with this spec, which is indented by two."""
    return f"apiVersion: v1\nkind: Pod\nmetadata:\n  name: web\n{meta}spec:\n{spec}"


def workload_manifest(kind: str, spec: str, *, name: str = "web") -> str:
    """A workload with this spec, indented by six, in its pod template."""
    return f"""apiVersion: apps/v1
kind: {kind}
metadata:
  name: {name}
spec:
  selector:
    matchLabels: {{app: {name}}}
  template:
    metadata:
      labels: {{app: {name}}}
    spec:
{spec}"""


def kubelet_configuration(fields: str) -> str:
    """A KubeletConfiguration with these fields."""
    return f"apiVersion: kubelet.config.k8s.io/v1beta1\nkind: KubeletConfiguration\n{fields}"


# Fields of a configuration, the machine (if one is given), what is found, and the first edit.
CONFIGURATIONS = """
    memoryManagerPolicy: Static                            | -    | NW303       | reservedMemory: [{"numaNode": 0, "limits": {"memory": "100Mi"}}]
    memoryManagerPolicy: Static, evictionHard: {memory.available: 5%}, mergeDefaultEvictionSettings: true | - | NW318 | set evictionHard[memory.available]
    memoryManagerPolicy: Static, evictionHard: {memory.available: 5%}, mergeDefaultEvictionSettings: true | vm-4 | NW303 NW318 | reservedMemory: [{"numaNode": 0, "limits": {"memory": "858993472"}}]
    memoryManagerPolicy: Static, reservedMemory: [{numaNode: 0, limits: {memory: 1Gi}}] | - | NW303 | reservedMemory[0].limits[memory]: 100Mi
    memoryManagerPolicy: Static, reservedMemory: [{numaNode: 0, limits: {memory: 100Mi, hugepages-2Mi: 4Mi}}] | - | NW303 |
    memoryManagerPolicy: Static, reservedMemory: [{numaNode: 0, limits: {hugepages-2Mi: 4Mi}}] | - | NW303 |
    memoryManagerPolicy: Static, reservedMemory: [{numaNode: 3, limits: {memory: 100Mi}}] | - | -
    memoryManagerPolicy: Static, reservedMemory: [{numaNode: 3, limits: {memory: 100Mi}}] | vm-4 | NW303 |
    memoryManagerPolicy: BestEffort                        | -    | NW305       |
    cpuManagerPolicy: dynamic                              | -    | NW305       |
    cpuManagerPolicyOptions: {full-pcpus-only: "true"}     | -    | NW305       |
    cpuManagerPolicy: static, kubeReserved: {cpu: x}       | -    | NW301       |
    cpuManagerPolicy: static, reservedSystemCPUs: 0-7      | -    | -           |
    cpuManagerPolicy: static, reservedSystemCPUs: 0-7      | vm-4 | NW301       |
    cpuManagerPolicy: static, topologyManagerPolicy: single-numa-node, kubeReserved: {cpu: "1"}, featureGates: {CPUManagerPolicyAlphaOptions: true}, cpuManagerPolicyOptions: {align-by-socket: "true"} | - | NW305 |
    cpuManagerPolicy: static, topologyManagerPolicy: restricted, kubeReserved: {cpu: "1"}, topologyManagerPolicyOptions: {closest: "true"} | - | NW305 |
    cpuManagerPolicy: static, topologyManagerPolicy: restricted, kubeReserved: {cpu: "1"} | epyc-7742-2s-l3numa | NW305 |
    cpuManagerPolicy: static, topologyManagerPolicy: single-numa-node, kubeReserved: {cpu: "1"}, topologyManagerPolicyOptions: {prefer-closest-numa-nodes: "true"} | - | NW306 | remove topologyManagerPolicyOptions[prefer-closest-numa-nodes]
    reservedMemory: [{numaNode: 0, limits: {memory: 1Gi}}] | -    | NW306       | remove reservedMemory
    evictionHard: {}, evictionMinimumReclaim: {memory.available: 1Gi} | - | NW306 NW309 | mergeDefaultEvictionSettings: true
    topologyManagerScope: container                        | -    | -           |
    cpuManagerPolicy: static, systemReserved: {cpu: 500m}  | -    | NW307       | systemReserved[cpu]: "1"
    cpuManagerPolicy: static, kubeReserved: {cpu: 250m}, systemReserved: {cpu: 500m} | - | NW307 | kubeReserved[cpu]: 500m
    cpuManagerPolicy: static, kubeReserved: {cpu: 250m}, systemReserved: {cpu: 750m} | - | -
    cpuManagerPolicy: static, kubeReserved: {cpu: 500mX}, systemReserved: {cpu: 500m} | - | NW301 |
    cpuManagerPolicy: static, kubeReserved: {cpu: 500m}, systemReserved: {cpu: 500mX} | vm-4 | NW301 |
    cpuManagerPolicy: static, kubeReserved: {cpu: "1"}, cpuManagerPolicyOptions: {full-pcpus-only: "true"} | vm-4 | NW308 |
    cpuManagerPolicy: static, kubeReserved: {cpu: "2"}, cpuManagerPolicyOptions: {full-pcpus-only: "true"} | vm-4 | - |
    cpuManagerPolicy: static, kubeReserved: {cpu: "1"}, cpuManagerPolicyOptions: {full-pcpus-only: "true"} | kunpeng-920-2s | - |
    cpuManagerPolicy: static, kubeReserved: {cpu: "1"}, cpuManagerPolicyOptions: {full-pcpus-only: "false"} | vm-4 | - |
    maxPods: 0, kubeAPIQPS: 0, registryPullQPS: 0, reservedSystemCPUs: "0" | - | NW310 | remove maxPods
    evictionSoft: {memory.available: 1Gi}, evictionSoftGracePeriod: {memory.available: 1m}, evictionMaxPodGracePeriod: 30 | - | - |
    evictionHard: null                                     | -    | -           |
    reservedSystemCPUs: 0-1, systemReserved: {cpu: "0"}    | -    | -           |
    failCgroupV1: true                                     | -    | -           |
    memorySwap: {swapBehavior: NoSwap}                     | -    | -           |
    featureGates: {NoSuchGate: true}                       | -    | NW301       |
    kubeReserved: {cpu: 1}                                 | -    | NW301       |
    cpuManagerPolicy: static, kubeReserved: {cpu: "2"}     | odd-offline-cpus | NW321 |
"""


def lint_manifest(
    folder: Path, text: str, *, nodes: tuple[str, ...] = (), config: str = ""
) -> list[LintFinding]:
    path, kubelet_path = folder / "manifest.yaml", folder / "kubelet.yaml"
    path.write_text(text)
    kubelet_path.write_text(config)
    lint_input = load_lint_input(
        load_inventory([str(path)] if text else []), nodes, str(kubelet_path) if config else None
    )
    return list(lint_result(lint_input, ALL_RULES).findings)


def ids(found: list[LintFinding]) -> str:
    return " ".join(sorted({lint_finding.rule.id for lint_finding in found})) or "-"


@pytest.mark.parametrize("line", CONFIGURATIONS.strip().splitlines())
def test_the_findings_in_a_configuration(line: str, tmp_path: Path) -> None:
    fields, node, wanted, fix = (cell.strip() for cell in f"{line}|".split("|")[:4])
    document = yaml.safe_dump(yaml.safe_load(f"{{{fields}}}"), sort_keys=False)
    lint_findings = lint_manifest(
        tmp_path, "", nodes=() if node == "-" else (node,), config=kubelet_configuration(document)
    )
    assert ids(lint_findings) == wanted, lint_findings
    assert (lint_findings[0].fix if lint_findings else "") == fix


SMALL = "requests: {cpu: 100m, memory: 64Mi}"
LEVEL = "requests: {cpu: 100m, memory: 64Mi}, limits: {cpu: 100m, memory: 64Mi}"
WHOLE = "requests: {cpu: 2, memory: 1Gi}, limits: {cpu: 2, memory: 1Gi}"


def container(name: str, resources: str, more: str = "") -> str:
    return f"{{name: {name}, image: example.com/{name}, resources: {{{resources}}}{more}}}"


def containers(*each: str) -> str:
    return f"  containers: [{', '.join(each)}]\n"


def inits(*each: str) -> str:
    return f"  initContainers: [{', '.join(each)}]\n"


APP = containers(container("app", SMALL))
CRITICAL = (
    "      priorityClassName: system-node-critical\n      containers: [{name: a, image: example.com/a}]\n"
)
STATIC = "  annotations: {kubernetes.io/config.source: file}\n"

PODS = {
    "nothing at all": (pod_manifest(containers("{name: a, image: example.com/a}")), "NW118"),
    "nothing by choice": (pod_manifest(containers("{name: a, image: example.com/a, resources: {}}")), "-"),
    "no memory request": (pod_manifest(containers(container("a", "requests: {cpu: 1}"))), "NW119"),
    "memory requested by its limit": (
        pod_manifest(containers(container("a", "requests: {cpu: 1}, limits: {memory: 64Mi}"))),
        "NW103",
    ),
    "a critical DaemonSet": (workload_manifest("DaemonSet", CRITICAL), "NW118"),
    "a Guaranteed DaemonSet": (workload_manifest("DaemonSet", f"      containers: [{container('a', LEVEL)}]\n"), "-"),
    "an init container alone that is Guaranteed": (pod_manifest(inits(container("i", LEVEL)) + APP), "-"),
    "an init container that takes the pod out": (
        pod_manifest(inits("{name: i, image: example.com/i}") + containers(container("a", WHOLE))),
        "NW102",
    ),
    "a pod level that makes up for a helper": (
        pod_manifest(
            f"  resources: {{{WHOLE}}}\n"
            + containers(container("a", "requests: {cpu: 1, memory: 64Mi}"), "{name: b, image: example.com/b}")
        ),
        "NW106",
    ),
    "a pod level with part of a CPU": (pod_manifest(f"  resources: {{{LEVEL}}}\n" + APP), "-"),
    "a pod level and nothing else, empty": (pod_manifest("  resources: {}\n" + containers("{name: a, image: example.com/a}")), "-"),
    "devices with a request": (pod_manifest(containers(container("a", "requests: {cpu: 1, memory: 64Mi}, limits: {nvidia.com/gpu: 1}"))), "-"),
    "1.1Gi as the API server prints it": (
        pod_manifest(containers(container("a", "requests: {memory: 1181116006400m, cpu: 100m}"))),
        "-",
    ),
    "a part of a byte that nobody wrote so": (pod_manifest(containers(container("a", "requests: {memory: 0.1Ki, cpu: 1m}"))), "-"),
    "zero as a number": (pod_manifest(containers(container("a", "requests: {cpu: 0, memory: 0}"))), "-"),
    "a limit on storage in the only container": (
        pod_manifest(containers(container("a", f"{SMALL}, limits: {{ephemeral-storage: 1Gi}}").replace(SMALL, "requests: {cpu: 1, memory: 64Mi, ephemeral-storage: 1Gi}"))),
        "-",
    ),
    "an init container before the sidecar": (
        pod_manifest(inits(container("i", "requests: {cpu: 1, memory: 1Gi}"), container("s", SMALL, ", restartPolicy: Always")) + APP),
        "-",
    ),
    "an init container that is smaller than the pod": (
        pod_manifest(
            inits(container("s", SMALL, ", restartPolicy: Always"), container("i", SMALL))
            + containers(container("a", "requests: {cpu: 1, memory: 1Gi}"))
        ),
        "-",
    ),
    "a pod for Windows": (
        pod_manifest("  os: {name: windows}\n" + APP, meta="  labels: {kubernetes.io/os: windows}\n"),
        "-",
    ),
    "a static pod of whole bytes": (pod_manifest(containers(container("a", LEVEL)), meta=STATIC), "-"),
    "a static pod that is Burstable": (pod_manifest(containers(container("a", "requests: {memory: 1.5Gi, cpu: 1}")), meta=STATIC), "-"),
    "1.5Gi by way of the API server": (
        pod_manifest(containers(container("a", "requests: {memory: 1.5Gi, cpu: 100m}, limits: {memory: 1.5Gi, cpu: 100m}"))),
        "-",
    ),
    "a static pod with a class of its own": (pod_manifest("  priorityClassName: mine\n" + APP, meta=STATIC), "NW117"),
    "a limit range that makes it Guaranteed": (
        "apiVersion: v1\nkind: LimitRange\nmetadata: {name: usual}\nspec:\n  limits:\n"
        "  - {type: Container, default: {cpu: 100m, memory: 64Mi}}\n---\n"
        + workload_manifest("DaemonSet", f"      containers: [{container('a', SMALL)}]\n"),
        "-",
    ),
    "a priority without a class": (pod_manifest("  priority: 5\n" + APP), "NW409"),
    "a priority of a static pod": (pod_manifest("  priority: 5\n" + APP, meta=STATIC), "-"),
    "a node beside scheduling gates, in a template": (
        workload_manifest("Deployment", f"      nodeName: a\n      schedulingGates: [{{name: a}}]\n    {APP}"),
        "NW409",
    ),
    "a limit range that forbids a pod": (
        "apiVersion: v1\nkind: LimitRange\nmetadata: {name: usual}\nspec:\n  limits:\n"
        "  - {type: Container, max: {cpu: 1m}}\n---\n" + pod_manifest(APP),
        "NW401",
    ),
    "a default limit below the request": (
        "apiVersion: v1\nkind: LimitRange\nmetadata: {name: usual}\nspec:\n  limits:\n"
        "  - {type: Container, default: {cpu: 1m}}\n---\n" + pod_manifest(APP),
        "NW402",
    ),
    "a limit range of another namespace": (
        "apiVersion: v1\nkind: LimitRange\nmetadata: {name: usual, namespace: other}\nspec:\n  limits:\n"
        "  - {type: Container, max: {memory: 1Mi}}\n---\n" + pod_manifest(APP),
        "-",
    ),
}  # fmt: skip


@pytest.mark.parametrize("what", PODS)
def test_the_findings_in_a_pod(what: str, tmp_path: Path) -> None:
    text, wanted = PODS[what]
    lint_findings = lint_manifest(tmp_path, text)
    assert ids(lint_findings) == wanted, lint_findings


STATIC_KUBELET = kubelet_configuration("cpuManagerPolicy: static\nkubeReserved: {cpu: '1'}\n")
NONE_KUBELET = kubelet_configuration("maxPods: 110\n")
ON_NODES = {
    "it fits": (pod_manifest(APP), ("vm-4",), NONE_KUBELET, "-"),
    "a device of which nothing is known": (
        pod_manifest(containers(container("a", "requests: {cpu: 1, memory: 1Gi}, limits: {nvidia.com/gpu: 1}"))),
        ("vm-4",),
        NONE_KUBELET,
        "NW210",
    ),
    "it is for other nodes": (
        pod_manifest("  nodeSelector: {disk: ssd}\n" + containers(container("a", "requests: {cpu: 100, memory: 7Gi}"))),
        ("vm-4",),
        NONE_KUBELET,
        "NW211",
    ),
    "one of two nodes is large enough": (
        pod_manifest(containers(container("a", "requests: {cpu: 100, memory: 7Gi}"))),
        ("vm-4", "epyc-7742-2s-nps1"),
        NONE_KUBELET,
        "-",
    ),
    "a static pod that is too large": (
        pod_manifest(containers(container("a", "requests: {cpu: 100, memory: 7Gi}")), meta=STATIC),
        ("vm-4",),
        NONE_KUBELET,
        "NW203",
    ),
    "a static pod that is too large for one of two": (
        pod_manifest(containers(container("a", "requests: {cpu: 100, memory: 7Gi}")), meta=STATIC),
        ("vm-4", "epyc-7742-2s-nps1"),
        NONE_KUBELET,
        "-",
    ),
    "the pod level where nobody has CPUs of his own": (
        pod_manifest(f"  resources: {{{WHOLE}}}\n" + APP),
        ("vm-4",),
        NONE_KUBELET,
        "-",
    ),
    "the pod level under the static policy": (
        pod_manifest(f"  resources: {{{WHOLE}}}\n" + APP),
        ("vm-4",),
        STATIC_KUBELET,
        "NW106",
    ),
    "part of a CPU where nobody has CPUs of his own": (
        pod_manifest(containers(container("a", LEVEL.replace("100m", "1500m")))),
        ("vm-4",),
        NONE_KUBELET,
        "-",
    ),
    "1.5Gi in a static pod where no memory is set aside": (
        pod_manifest(containers(container("a", LEVEL.replace("64Mi", "1.5Gi"))), meta=STATIC),
        ("vm-4",),
        NONE_KUBELET,
        "-",
    ),
    "more CPUs for itself than a node can give, though their sum fits": (
        workload_manifest("Deployment", f"      containers: [{container('a', WHOLE.replace('cpu: 2', 'cpu: 4'))}]\n"),
        ("vm-4",),
        kubelet_configuration("cpuManagerPolicy: static\nkubeReserved: {cpu: 1m}\n"),
        "NW204 NW307",
    ),
}  # fmt: skip


@pytest.mark.parametrize("what", ON_NODES)
def test_the_findings_of_a_pod_on_nodes(what: str, tmp_path: Path) -> None:
    text, nodes, config, wanted = ON_NODES[what]
    lint_findings = lint_manifest(tmp_path, text, nodes=nodes, config=config)
    assert ids(lint_findings) == wanted, lint_findings


def test_a_taint_keeps_a_pod_from_a_node(tmp_path: Path) -> None:
    document = yaml.safe_load(Path("examples/nodes/worker.yaml").read_text())
    document["spec"] |= {"taints": [{"key": "gpu", "effect": "NoSchedule"}], "pods": []}
    huge = containers(container("a", "requests: {cpu: 100, memory: 7Gi}"))
    for tolerations, is_found in (("", False), ("  tolerations: [{operator: Exists}]\n", True)):
        lint_findings = lint_manifest(
            tmp_path, f"{yaml.safe_dump(document)}---\n{pod_manifest(tolerations + huge)}"
        )
        assert ("NW204" in ids(lint_findings)) == is_found


# An emptyDir, the limits of the container and of the pod, and what has the limit that it may exceed.
VOLUMES = """
    {medium: Memory, sizeLimit: 2Gi}        | {memory: 1Gi}                                   |                 | container app
    {medium: Memory, sizeLimit: 1Gi}        | {memory: 1Gi}                                   |                 | -
    {medium: Memory}                        | {memory: 1Gi}                                   |                 | -
    {medium: Memory, sizeLimit: 2Gi}        | {cpu: 1}                                        |                 | -
    {medium: Memory, sizeLimit: 2Gi}        | {cpu: 1}                                        | {memory: 1Gi}   | the pod
    {sizeLimit: 2Gi}                        | {memory: 1Gi, ephemeral-storage: 1Gi}           |                 | the pod
    {sizeLimit: 2Gi}                        | {memory: 1Gi}                                   |                 | -
    {medium: HugePages-2Mi, sizeLimit: 8Mi} | {memory: 1Gi, cpu: 1, hugepages-2Mi: 4Mi}       |                 | container app
    {medium: HugePages, sizeLimit: 8Mi}     | {memory: 1Gi, cpu: 1, hugepages-2Mi: 4Mi}       |                 | container app
    {medium: HugePages-1Gi, sizeLimit: 2Gi} | {memory: 1Gi, cpu: 1, hugepages-1Gi: 2Gi}       |                 | -
"""


@pytest.mark.parametrize("line", VOLUMES.strip().splitlines())
def test_an_empty_dir_above_a_limit_is_found(line: str, tmp_path: Path) -> None:
    volume, limits, of_pod, holder = (part.strip() for part in line.split("|"))
    mount = "volumeMounts: [{name: data, mountPath: /data}]"
    text = pod_manifest(
        f"  containers: [{{name: app, image: a, resources: {{limits: {limits}}}, {mount}}}]\n"
        f"  volumes: [{{name: data, emptyDir: {volume}}}]\n"
        + (f"  resources: {{limits: {of_pod}}}\n" if of_pod else "")
    )
    found = [each for each in lint_manifest(tmp_path, text) if each.rule.id == "NW120"]
    assert [f"limit of {holder} is" in each.text for each in found] == ([] if holder == "-" else [True])
