"""All commands with all their options of output and good input for each: `tools.fuzz` damages it.

A line is a command line. FILE, TABLE and TREE stand for the damaged input as in `tools.fuzz`; WORD is its text, KUBE a
kubeconfig of a server whose answers are made of it, and SOCKET an agent's. Of words with `|` one is taken, which the input chooses.
"""

import contextlib
import gzip
import io
import itertools
import json
import tempfile
from collections.abc import Iterable, Mapping
from functools import cache
from pathlib import Path
from typing import Any

from tests.support.custom_objects import custom_objects
from tests.support.full_objects import KINDS, full_object

from nodewright.cli.app import run
from tools.fuzz_targets import CONFIGURATION, POD, PROFILE, USAGE
from tools.source import ROOT

_E = "examples"
_W3 = f"{_E}/worker-3"
_ALL = "|-ojson|-oyaml|-owide|-oname"
_TWO = "|-ojson|-oyaml"
_PODS = f"--pods {_E}/fleet/pods.csv"
_NODES = f"--nodes {_E}/fleet/nodes.csv"
_CAPTURE = f"--configz {_W3}/configz.json --pods {_W3}/pods.json --node-object {_W3}/node.json --nrt {_W3}/topology.yaml"
_EVICT = f"--node {_E}/eviction/node.yaml"
_STATES = ("cpu_manager_state", "memory_manager_state", "allocated_pods_state", "actuated_pods_state", "config.yaml",
           "device-plugins/kubelet_internal_checkpoint")  # fmt: skip
_NONE = "256.0.0.1:1"
"""An address that no server gets, so that a command that serves ends."""

MANIFESTS = (
    "hollow --kubeconfig /nonexistent --nodes 2*vm-4 --resource-slices FILE",
    f"requests --node vm-4 -f FILE |--explain {_ALL}",
    f"admit --node=vm-4|--shape=1x2x8x2|--node={_E}/resize/node.yaml -f FILE |--replicas|--resize {_ALL}|-ogithub",
    "explain |--node=vm-4|--shape=2x1x8x2 -f FILE |--replicas |-ojson|-oyaml|-owide",
    "explain --node vm-4 --pod FILE |-ojson|-oyaml|-owide",
    f"preempt --node {_E}/preemption/node.yaml -f FILE |--optimal|--exact {_ALL}",
    f"evict {_EVICT} --usage {_E}/eviction/summary.json -f FILE |--compare|--advise|--timeline {_ALL}",
    "cgroups --node vm-4 -f FILE |--all |--cgroup-version=1|--cgroup-driver=cgroupfs |-ojson|-oyaml|-oname",
    "lint -f FILE |--summary|--diff|--node=vm-4|--strict |-ojson|-oyaml|-osarif|-ojunit|-ogithub",
    "quota -f FILE |--from-status|--surge|--what-if |-ojson|-oyaml|-ojunit|-osarif|-ogithub|-oname",
    f"fit --node vm-4 -f FILE |--replicas {_TWO}",
    f"fit --nodes FILE -f {_E}/agent/web.yaml {_TWO}",
    f"fit|admit|explain --node vm-4 -f {_E}/agent/web.yaml --pods FILE {_TWO}",
    f"drain node/worker-1 -f {_E}/drain/shop.yaml -f FILE {_TWO}",
    f"upgrade --node vm-4 -f FILE --from 1.33 {_ALL}",
    f"upgrade --nodes FILE --from 1.33 {_ALL}",
    f"quota -f {_E}/quota/small.yaml --surge -f FILE |-ojson|-oyaml",
    f"fleet run {_NODES} --pods FILE |--extender|--preemption|--retry=elsewhere |-ojson|-oyaml|-owide",
    "fleet run -f FILE |-ojson|-oyaml|-owide",
    f"fleet run --nodes FILE {_PODS} |-ojson|-oyaml|-owide",
    f"fleet run {_NODES} {_PODS} --probe FILE {_TWO}",
    f"fleet capacity --nodes FILE -f {_E}/fleet/probe.yaml {_TWO}",
    f"fleet capacity {_NODES} -f FILE {_TWO}",
    f"fleet capacity {_NODES} -f {_E}/fleet/probe.yaml --pods FILE {_TWO}",
    f"fleet minimise {_NODES} --most 6 --pods FILE |--exact {_TWO}",
    f"rehearse --node {_E}/rehearsal/worker-3.yaml --pods FILE {_ALL}",
    f"upgrade --node {_E}/rehearsal/worker-3.yaml --from 1.33 --pods FILE {_ALL}",
    f"audit --cgroups none --root-dir {_W3}/kubelet --node {_E}/rehearsal/worker-3.yaml --pods FILE {_TWO}",
    f"node capture {_CAPTURE} --pods FILE |-ojson|-oyaml",
    "agent --dry-run --node vm-4 --workload-dir|--pod-manifest-path TREE:examples/agent:pinned.yaml",
    f"requests|lint|quota -k TREE:{_E}/quota:kustomization.yaml {_TWO}",
)  # fmt: skip
"""Commands on objects."""

CLUSTER = (
    f"requests --kubeconfig KUBE -A --node vm-4 pods|deploy|nodes {_ALL}",
    f"admit --kubeconfig KUBE -A --node=nodes|--node=node/worker-3|--node=vm-4 pods {_ALL}",
    "explain --kubeconfig KUBE -A --node=nodes|--node=node/worker-3|--node=vm-4 pods |-ojson|-oyaml",
    f"preempt --kubeconfig KUBE -A --node node/worker-3 pods {_ALL}",
    f"evict --kubeconfig KUBE --node node/worker-3 --available memory.available=50Mi {_ALL}",
    "cgroups --kubeconfig KUBE -A --node node/worker-3 pods |-ojson|-oyaml|-oname",
    "lint --kubeconfig KUBE -A pods |-ojson|-oyaml|-osarif",
    "quota --kubeconfig KUBE -A pods |--from-status |-ojson|-oyaml|-oname",
    "node show|capture|export --kubeconfig KUBE node/worker-3 |-ojson|-oyaml",
    f"rehearse|upgrade|audit --kubeconfig KUBE node/worker-3 {_TWO}",
    f"upgrade --kubeconfig KUBE --nodes nodes --from 1.33 {_TWO}",
    f"fit --kubeconfig KUBE -A --node nodes |pods {_TWO}",
    f"drain --kubeconfig KUBE node/worker-3 {_TWO}",
    "fleet run --kubeconfig KUBE |-ojson|-oyaml|-owide",
    f"fleet capacity --kubeconfig KUBE -f {_E}/fleet/probe.yaml {_TWO}",
    f"fleet minimise --kubeconfig KUBE --most 6 {_TWO}",
)  # fmt: skip
"""Commands on what an API server answers."""
AGENT = (
    "run -f examples/agent/web.yaml --socket SOCKET -n WORD",
    f"get pods|node|events --socket SOCKET |-A|--namespace=WORD {_ALL}",
    f"get pods|node --socket SOCKET WORD {_ALL}",
    f"describe pod|node --socket SOCKET |--namespace=WORD {_TWO}",
    f"describe pod WORD -n shop --socket SOCKET {_TWO}",
    f"top pods|node --socket SOCKET |--containers|--namespace=WORD {_TWO}",
    "logs WORD -n shop --socket SOCKET |--timestamps|--tail=WORD|--since=WORD",
    "delete pod WORD -n shop --no-wait --socket SOCKET",
    f"node export --socket SOCKET --nrt|--node-name=WORD {_TWO}",
)
"""Commands that talk to an agent, whose answers are trusted; the words are not."""

NODES = (
    f"node show --node FILE |--ascii {_TWO}",
    f"node export --node FILE |--nrt {_TWO}",
    f"requests --node FILE -f {_E}/agent/web.yaml {_ALL}",
    f"admit --node FILE -f {_E}/agent/pinned.yaml {_ALL}",
    f"explain --node FILE -f {_E}/agent/pinned.yaml |-ojson|-oyaml|-owide",
    f"preempt --node FILE -f {_E}/preemption/critical.yaml {_ALL}",
    f"evict --node FILE --usage {_E}/eviction/summary.json |--compare|--advise|--timeline {_ALL}",
    f"evict --node FILE --available memory.available=50Mi {_ALL}",
    f"cgroups --node FILE -f {_E}/agent/web.yaml |--all |-ojson|-oyaml|-oname",
    f"lint --node FILE -f {_E}/agent/web.yaml {_TWO}",
    f"fit --node FILE -f {_E}/agent/pinned.yaml {_TWO}",
    "hollow --kubeconfig /nonexistent --nodes 2*FILE",
    f"rehearse --node FILE {_ALL}",
    f"upgrade --node FILE --from 1.33 {_ALL}",
    f"audit --cgroups none --root-dir {_W3}/kubelet --node FILE {_TWO}",
    f"fleet run --nodes FILE {_PODS} |-ojson|-oyaml",
    f"replay {_E}/scenarios/devices.yaml --node FILE {_ALL}",
    f"agent --dry-run --node FILE --workload-dir {_E}/agent",
)  # fmt: skip
CONFIGURATIONS = (
    f"lint -f {_E}/agent/web.yaml --kubelet-config FILE |--node=vm-4 |-ojson|-oyaml|-osarif|-ojunit|-ogithub",
    "lint FILE |--release=1.33|--strict |-ojson|-oyaml",
    f"admit --node vm-4 --kubelet-config FILE -f {_E}/agent/pinned.yaml {_ALL}",
    f"explain --node vm-4 --kubelet-config FILE -f {_E}/agent/pinned.yaml {_TWO}",
    f"evict {_EVICT} --kubelet-config FILE --usage {_E}/eviction/summary.json |--advise|--timeline {_ALL}",
    f"cgroups --node vm-4 --kubelet-config FILE -f {_E}/agent/web.yaml {_TWO}",
    f"rehearse --node {_E}/rehearsal/worker-3.yaml --config FILE {_ALL}",
    f"upgrade --node vm-4 --kubelet-config FILE --from 1.33 {_ALL}",
    f"fleet run {_NODES} {_PODS} --kubelet-config FILE {_TWO}",
    f"fleet capacity {_NODES} -f {_E}/fleet/probe.yaml --kubelet-config FILE {_TWO}",
    f"fleet minimise {_NODES} --most 6 {_PODS} --kubelet-config FILE {_TWO}",
    f"fit --node vm-4 -f {_E}/agent/web.yaml --kubelet-config FILE {_TWO}",
    f"drain node/worker-1 -f {_E}/drain/shop.yaml --kubelet-config FILE {_TWO}",
    f"lend --node {_E}/lend/node.yaml --usage {_E}/lend/memory.json --kubelet-config FILE {_TWO}",
    "hollow --kubeconfig /nonexistent --nodes 2*vm-4 --config FILE",
    f"preempt --node {_E}/preemption/node.yaml -f {_E}/preemption/critical.yaml --kubelet-config FILE {_TWO}",
    f"replay {_E}/scenarios/devices.yaml --kubelet-config FILE {_ALL}",
    f"node capture --catalogue vm-4 --kubelet-config FILE {_TWO}",
    f"node capture {_CAPTURE} --configz FILE {_TWO}",
    f"audit --cgroups none --root-dir {_W3}/kubelet --node vm-4 --kubelet-config|--configz FILE {_TWO}",
    f"export --once --node-name a --pod-resources none --kubelet-root {_W3}/kubelet --kubelet-config FILE",
    "agent --dry-run --node vm-4 --config FILE",
)  # fmt: skip
_FRACTIONS = b"""apiVersion: kubelet.config.k8s.io/v1beta1
kind: KubeletConfiguration
cpuManagerPolicy: static
kubeReserved: {cpu: 250m, memory: 1Gi}
systemReserved: {cpu: 500m}
"""
_TREE = f"TREE:{_W3}/kubelet"
STATES = (
    f"rehearse --node {_E}/rehearsal/worker-3.yaml --kubelet-root {_TREE}:STATE {_ALL}",
    f"upgrade --node {_E}/rehearsal/worker-3.yaml --from 1.33 --kubelet-root {_TREE}:STATE {_ALL}",
    f"audit --cgroups none --node {_E}/rehearsal/worker-3.yaml --root-dir {_TREE}:STATE {_TWO}",
    f"node capture --catalogue vm-4 --pods {_W3}/pods.json --node-name worker-3 --kubelet-root {_TREE}:STATE {_TWO}",
    f"export --once --node-name a --pod-resources none --kubelet-root {_TREE}:STATE",
)
_TEXTS: Mapping[str, tuple[str, ...]] = {
    "schema WORD": ("RequestsReport", "NodeProfile"),
    f"examples {_E}/agent/web.yaml/WORD": ("new",),  # below a file nothing is written
    "completion WORD": ("bash", "zsh", "fish"),
    "help WORD": ("admit", "node"),
    "version -oWORD": ("json", "yaml"),
    f"node catalogue WORD {_TWO}|-oname": ("vm-4", "laptop-i7-1370p"),
    "kubelet --version=true --max-pods=WORD|--kube-reserved=WORD|--eviction-hard=WORD|--v=WORD": ("110", "cpu=1", "memory.available<5%"),
    "kubelet --list-flags": ("",),
    f"dashboard --socket /nonexistent --listen {_NONE}WORD": ("1",),
    f"admit --shape=WORD -f {_E}/agent/web.yaml": ("2x1x32x2", "vm-4"),
    f"admit --node vm-4 -f {_E}/agent/web.yaml --device=WORD|--memory=WORD|--release=WORD|--selector=WORD|--template-path=WORD|--max-document-size=WORD|--namespace=WORD": (
        "nvidia.com/gpu=8@numa", "64Gi", "1.33", "app in (a,b)", "JobSet=spec.replicatedJobs[*].template", "3Mi", "shop",
    ),
    f"evict {_EVICT} --available=WORD": ("memory.available=50Mi", "nodefs.inodesFree=5"),
    f"evict {_EVICT} --usage {_E}/eviction/summary.json --timeline --growth=WORD|--duration=WORD|--signal=WORD": (
        "shop/web=10Mi/s", "1h", "memory.available",
    ),
    f"quota -f {_E}/quota/small.yaml --what-if --set=WORD": ("shop/compute.requests.cpu=10", "a=b"),
    f"fleet run {_NODES} {_PODS} --shapes=WORD|--until=WORD|--sweep=WORD|--lend=WORD|--scores=WORD|--shards=WORD|--max-unpacked-size=WORD {_TWO}": (
        "16=vm-4", "label:zone", "1h30m", "topologyManagerPolicy=none,restricted", "default", "zone", "8Mi",
    ),
    f"fleet capacity {_NODES} -f {_E}/fleet/probe.yaml --sweep=WORD {_TWO}": ("topologyManagerPolicy=none,restricted",),
    "hollow --kubeconfig /nonexistent --nodes=WORD": ("3*vm-4", "2*vm-4,vm-8"),
    "hollow --kubeconfig /nonexistent --nodes=2*vm-4 --name=WORD|--speed=WORD|--fault=WORD|--node-labels=WORD|--register-with-taints=WORD|--release=WORD|--seed=WORD": (
        "a-{n}", "10x", "10m:hollow-1*:down=2m", "1s:*:restart=1.33", "a=b{n%4}", "a=b:NoSchedule", "1.33",
    ),
    f"fit --node vm-4 -f {_E}/agent/web.yaml --resource=WORD|--device=WORD|--memory=WORD|--release=WORD|--topology-policy=WORD": (
        "nvidia.com/gpu", "nvidia.com/gpu=8@numa", "64Gi", "1.33",
    ),
    f"drain -f {_E}/drain/shop.yaml node/worker-1 --nodes=WORD|--shapes=WORD|--gpu-annotation=WORD|--max-unpacked-size=WORD|--max-document-size=WORD": (
        "worker-1,worker-2", "16=vm-4", "nvidia.com/gpu", "8Mi",
    ),
    f"fleet run {_NODES} {_PODS} --drain=WORD|--gpu-annotation=WORD|--max-machine-cpus=WORD": ("a=1m", "nvidia.com/gpu", "8"),
    f"lint -f {_E}/lint/shop.yaml --only=WORD|--disable=WORD|--explain=WORD|--shape=WORD": ("NW101,NW102", "all", "2x1x8x2"),
    f"requests -f {_E}/agent/web.yaml --memory-capacity=WORD|--selector=WORD|--request-timeout=WORD|--release=WORD": ("8Gi", "app=web", "5s"),
    f"explain --node vm-4 -f {_E}/agent/web.yaml --condition=WORD|--budget=WORD|--topology-policy=WORD": ("MemoryPressure=True", "9"),
    f"lend --node {_E}/lend/node.yaml --usage {_E}/lend/memory.json --memory=WORD|--release=WORD": ("64Gi", "1.33"),
    "agent --dry-run --node vm-4 --lend=WORD|--node-labels=WORD|--register-with-taints=WORD|--feature-gates=WORD|--node-ip=WORD|--grant=WORD|--node-name=WORD|--provider-id=WORD": (
        "peak:5", "a=b", "a=b:NoSchedule", "A=true", "10.0.0.1", "read=user:a",
    ),
    "fleet generate --seed=1 --nodes-file /dev/null --pods-file /dev/null --nodes=WORD|--pods=WORD|--load=WORD": ("3", "0.5"),
    f"export --once --kubelet-root {_W3}/kubelet --pod-resources=none --node-name=WORD|--kubernetes-version=WORD|--poll-period=WORD|--listen=WORD|--kubelet-url=WORD|--grant=WORD|--advertise=WORD|--health-port=WORD": (
        "worker-3", "v1.36.0", "10", "127.0.0.1:0", "http://127.0.0.1:1", "read=user:a",
    ),
    f"export --listen {_NONE} --kubelet-root {_W3}/kubelet --pod-resources=none --node-name=a --grant=WORD|--kubelet-url=WORD|--advertise=WORD": (
        "read=user:a", "https://127.0.0.1:10250", "https://[::1]:9453",
    ),
    f"extender --kubeconfig KUBE --insecure-http --listen {_NONE} --lease=WORD|--export-base=WORD|--export-max-age=WORD|--export-port=WORD|--scorer=WORD|--fail=WORD |--leader-elect|--strict|--deny-impossible-pods": (
        "kube-system/a", "https://a/b", "60", "9453", "most-allocated", "open",
    ),
    f"extender --kubeconfig KUBE --insecure-http --health-listen {_NONE} --listen=WORD": (_NONE, f"[::1]:{_NONE}"),
}  # fmt: skip
"""Values of options."""


@cache
def command_targets() -> Mapping[str, tuple[bytes, ...]]:
    """Command lines, and good input for each."""
    fleet = [(ROOT / _E / "fleet" / name).read_bytes() for name in ("nodes.csv", "pods.csv")]
    lines = itertools.chain(
        ((line, objects()) for line in (*MANIFESTS, *CLUSTER)),
        ((line, (PROFILE, *_files("nodes/*.yaml"), *_files("numa/*node.yaml"), *_files("rehearsal/*.yaml"))) for line in NODES),
        ((line, (CONFIGURATION, _FRACTIONS, *_files("kubelet/*.yaml"), *_files("worker-3/configz.json"))) for line in CONFIGURATIONS),
        (
            (line.replace("STATE", state), _files(f"worker-3/kubelet/{state}") or _files("worker-3/kubelet/allocated_pods_state"))
            for line in STATES
            for state in _STATES
        ),
        ((line, tuple(text.encode() for text in texts)) for line, texts in _TEXTS.items()),
        ((line, (b"web", b"shop", b"worker-3", b"5m")) for line in AGENT),
        _other_lines(fleet),
    )  # fmt: skip
    return dict(lines)


def _other_lines(fleet: list[bytes]) -> Iterable[tuple[str, tuple[bytes, ...]]]:
    nodes, pods = fleet
    replayed = f"replay FILE |--node=vm-4|--strict {_ALL}"
    table = "|-ojson|-oyaml|-owide"
    vectors, machines = _vectors()
    usage = (b"name,namespace,at,memory\njob-1,default,0,1Gi\njob-1,default,30,2Gi\n",)
    used = ((ROOT / _E / "eviction/summary.json").read_bytes(), USAGE)
    return {
        f"node capture {_CAPTURE} --node-object FILE {_TWO}": (_written(full_object("Node")), *_files("worker-3/node.json")),
        f"node capture --configz {_W3}/configz.json --node-object FILE {_TWO}": (
            _written(full_object("Node")), *_files("worker-3/node.json"),
        ),
        f"node capture {_CAPTURE} --nrt FILE {_TWO}": _files("worker-3/topology.yaml"),
        f"fleet run --nodes TABLE {_PODS} {table}": (nodes,),
        f"fleet run {_NODES} --pods TABLE {table}": (pods,),
        f"fleet capacity --nodes TABLE -f {_E}/fleet/probe.yaml {_TWO}": (nodes,),
        f"fleet minimise {_NODES} --most 6 --pods TABLE {_TWO}": (pods,),
        f"fleet run {_NODES} {_PODS} --usage TABLE |--lend=n-sigma {table}": usage,
        f"upgrade --nodes TABLE --from 1.33 {_TWO}": (nodes,),
        f"fit --nodes TABLE -f {_E}/agent/web.yaml {_TWO}": (nodes,),
        f"lend --node FILE --usage {_E}/lend/memory.json |-ojson|-oyaml|-owide": _files("lend/node.yaml"),
        f"lend --node {_E}/lend/node.yaml --usage FILE |--advise |-ojson|-oyaml|-owide": (*_files("lend/*.json"), *used),
        f"lend --node {_E}/lend/node.yaml --usage TABLE |--advise |-ojson|-oyaml|-owide": _files("lend/*.csv"),
        f"evict {_EVICT} --usage FILE |--compare|--advise|--timeline {_ALL}": used,
        f"evict {_EVICT} --usage {_E}/eviction/summary.json --after FILE {_ALL}": used,
        f"evict {_EVICT} --usage {_E}/eviction/summary.json --timeline --growth FILE {_ALL}": _files("eviction/forecast.yaml"),
        f"evict {_EVICT} --usage {_E}/eviction/summary.json --timeline --growth TABLE {_ALL}": _files("eviction/recorded.csv"),
        replayed: (*_files("scenarios/*.yaml"), journal()),
        "verify FILE |--show=1|--release=1.33|--all-releases |-ojson": vectors,
        "verify --machines FILE |-ojson": machines,
        f"lint -f {_E}/agent/web.yaml --config FILE {_TWO}": (b"only: [NW118]\nfail-on: error\n", b"disable: [NW118]\n"),
        f"lint -f {_E}/lint/shop.yaml --baseline FILE {_TWO}": (_baseline(),),
        f"extender --kubeconfig FILE --insecure-http --listen {_NONE}": (kubeconfig("http://127.0.0.1:1"),),
        f"extender --kubeconfig KUBE --insecure-http --listen {_NONE} --token-auth-file|--export-token-file|--policies FILE": (
            b'token,user,uid,"group",2027-05-01T10:00:00Z\n',
        ),
        f"extender --kubeconfig KUBE --listen {_NONE} --client-ca-file|--tls-cert-file FILE": (b"-----BEGIN CERTIFICATE-----\n",),
        f"export --once --kubelet-root {_W3}/kubelet --pod-resources=none --kubeconfig FILE": (kubeconfig("http://127.0.0.1:1"),),
        f"export --listen {_NONE} --kubelet-root {_W3}/kubelet --pod-resources=none --token-auth-file|--client-ca-file FILE": (
            b'token,user,uid,"group",2027-05-01T10:00:00Z\n',
        ),
    }.items()  # fmt: skip


@cache
def objects() -> tuple[bytes, ...]:
    """Objects: full ones, a cluster, examples."""
    kinds = (*KINDS, "Node", "PodDisruptionBudget")
    examples = [
        *_files("manifests/*"),
        *_files("quota/**/*.yaml"),
        *_files("fleet/*.yaml"),
        *_files("failed/*.yaml"),
    ]
    custom = [_written(value) for value in custom_objects()]
    examples += [
        *_files("other-systems/*.yaml"),
        *_files("claims/*.yaml"),
        *_files("drain/*.yaml"),
        *_files("fit/*.yaml"),
        *custom,
    ]
    often = 8 * (POD, cluster(), _written(full_object("Pod")), _written(full_object("PodDisruptionBudget")))
    return (*often, *(_written(full_object(kind)) for kind in kinds), *examples)


@cache
def cluster() -> bytes:
    """A List of the objects of a small cluster: running and ended pods that are alike, nodes, budgets, quotas."""
    pod: dict[str, Any] = {
        "apiVersion": "v1",
        "kind": "Pod",
        "metadata": {"name": "web", "namespace": "shop", "uid": "1", "labels": {"app": "web"}},
        "spec": {
            "nodeName": "worker-3",
            "containers": [{"name": "main", "image": "a", "resources": {"requests": {"cpu": "1", "memory": "1Gi"}}}],
        },
        "status": {"phase": "Running", "containerStatuses": [{"name": "main", "state": {"running": {}}}]},
    }  # fmt: skip
    ended = json.loads(json.dumps(pod)) | {"status": {"phase": "Succeeded"}}
    ended["metadata"]["name"] = "job"
    waiting = json.loads(json.dumps(pod))
    waiting["metadata"]["name"], waiting["status"] = "next", {"phase": "Pending"}
    del waiting["spec"]["nodeName"]
    debugged = json.loads(json.dumps(pod))
    debugged["metadata"]["name"] = "debugged"
    debugged["spec"]["ephemeralContainers"] = [
        {"name": "debugger", "image": "a", "targetContainerName": "main"}
    ]
    kinds = (
        "Node",
        "PodDisruptionBudget",
        "ResourceQuota",
        "LimitRange",
        "Service",
        "PersistentVolumeClaim",
        "Deployment",
    )
    items = [*map(full_object, kinds), pod, ended, waiting, debugged]
    return _written({"apiVersion": "v1", "kind": "List", "items": items})


@cache
def journal() -> bytes:
    """A journal of a replay."""
    with (
        tempfile.TemporaryDirectory() as directory,
        contextlib.redirect_stdout(io.StringIO()),
        contextlib.redirect_stderr(io.StringIO()),
    ):
        path = Path(directory, "journal.yaml")
        run(["replay", str(ROOT / _E / "scenarios/pressure.yaml"), "--journal", str(path), "-oname"])
        return path.read_bytes()


@cache
def _baseline() -> bytes:
    with (
        tempfile.TemporaryDirectory() as directory,
        contextlib.redirect_stdout(io.StringIO()),
        contextlib.redirect_stderr(io.StringIO()),
    ):
        path = Path(directory, "baseline.json")
        run(["lint", "-f", str(ROOT / _E / "lint/shop.yaml"), "--write-baseline", str(path), "--quiet"])
        return path.read_bytes() if path.exists() else b"{}"


@cache
def _vectors() -> tuple[tuple[bytes, ...], tuple[bytes, ...]]:
    """Some recorded decisions of each family, and machines."""
    samples = list[bytes]()
    for path in sorted((ROOT / "tests/conformance/vectors").glob("*.jsonl.gz")):
        with gzip.open(path) as lines:
            samples += [line for line in itertools.islice(lines, 3) if len(line) < 20_000]
    machines = json.loads((ROOT / "src/nodewright/documents/profiles/data/machines.json").read_bytes())
    return tuple(samples), (json.dumps(machines).encode()[:200_000],)


def kubeconfig(server: str) -> bytes:
    """A kubeconfig of a server."""
    return f"""apiVersion: v1
kind: Config
current-context: shop
clusters: [{{name: shop, cluster: {{server: "{server}"}}}}]
contexts: [{{name: shop, context: {{cluster: shop, user: me, namespace: shop}}}}]
users: [{{name: me, user: {{token: abc}}}}]
""".encode()


def _written(value: object) -> bytes:
    return json.dumps(value).encode()


def _files(pattern: str) -> tuple[bytes, ...]:
    return tuple(path.read_bytes() for path in sorted((ROOT / _E).glob(pattern)) if path.is_file())
