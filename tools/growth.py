"""How the cost of every command grows with its input: `python -m tools growth [COMMAND|DIMENSION|"COMMAND by DIMENSION"...]`.

Each command runs in this process on files of four sizes for each dimension: containers of a pod, pods, namespaces, rules
(LimitRanges and quotas of a namespace, priority classes, budgets, thresholds), devices and CPUs of a node. A cost is the
least CPU time of some runs, without that of the smallest input; the exponent is the slope of the line through the costs on
logarithmic scales.
"""

import contextlib
import gc
import io
import json
import os
import tempfile
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

from nodewright.cli.app import COMMANDS, load_command, run
from nodewright.documents.files.process_tuning import COMMAND_THRESHOLDS
from tools.fleet_cost import FOLDER, LIMIT, SEED, exponent
from tools.source import commit

FIGURES = FOLDER / "command-growth.json"
ROUNDS, REPEATS, SIZES = 2, 2, (1, 2, 4, 8)
LEAST_S, NOISE_S = 0.05, 0.005
"""A cost that grows by less over all sizes has no exponent."""
GIB = 1 << 30
Objects = list[dict[str, Any]]


def _object(
    kind: str, name: str, spec: Mapping[str, Any], *, api: str = "v1", **metadata: Any
) -> dict[str, Any]:
    return {"apiVersion": api, "kind": kind, "metadata": {"name": name, **metadata}, "spec": dict(spec)}


def _container(number: int, **amounts: str) -> dict[str, Any]:
    requests = {"cpu": "1m", "memory": "1Mi", **amounts}
    return {"name": f"c{number}", "image": "registry.example/a:1", "resources": {"requests": requests}}


def _pod(number: int, namespace: str = "default", **amounts: str) -> dict[str, Any]:
    spec = {"containers": [_container(0, **amounts)]}
    return _object("Pod", f"p{number}", spec, namespace=namespace, uid=f"u{number}")


def _running(pods: Objects) -> Objects:
    """The pods as an API server returns them."""
    start = "2026-05-01T10:00:00Z"
    for number, pod in enumerate(pods):
        pod["spec"]["nodeName"] = "n0"
        state = [{"name": "c0", "state": {"running": {"startedAt": start}}, "ready": True, "restartCount": 0}]
        pod["status"] = {
            "phase": "Running",
            "qosClass": "Burstable",
            "startTime": start,
            "containerStatuses": state,
        }
        pod["metadata"]["creationTimestamp"] = f"2026-05-01T09:{number // 60 % 60:02}:{number % 60:02}Z"
    return pods


def containers(count: int) -> Objects:
    """A pod of so many containers."""
    return [
        _object(
            "Pod", "p", {"containers": [_container(at) for at in range(count)]}, namespace="default", uid="u"
        )
    ]


def large_containers(count: int) -> Objects:
    """A pod of so many containers, which do not fit from 64 on."""
    several = [_container(at, cpu="1", memory="1Gi") for at in range(count)]
    return [_object("Pod", "p", {"containers": several}, namespace="default", uid="u")]


def init_containers(count: int) -> Objects:
    """A pod of so many init containers, which do not fit."""
    several = [_container(at, cpu="900") for at in range(count)]
    return [
        _object(
            "Pod", "p", {"initContainers": several, "containers": [_container(count)]}, namespace="default"
        )
    ]


def pods(count: int) -> Objects:
    """So many pods that differ in what they request."""
    return [_pod(at, memory=f"{1 + at % 50}Mi") for at in range(count)]


def namespaces(count: int) -> Objects:
    """So many namespaces with a pod, a quota and a LimitRange each."""
    names = [f"s{at}" for at in range(count)]
    limits = {"limits": [{"type": "Container", "default": {"cpu": "1"}, "max": {"cpu": "2"}}]}
    return [
        member
        for at, name in enumerate(names)
        for member in (
            {"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": name}},
            _object("ResourceQuota", "q", {"hard": {"requests.cpu": "10", "pods": "5"}}, namespace=name),
            _object("LimitRange", "l", limits, namespace=name),
            _pod(at, name, cpu="3" if at % 2 else "1"),
        )
    ]


def rules(count: int) -> Objects:
    """So many LimitRanges, quotas, priority classes and budgets, and a pod under them."""
    limits = {"limits": [{"type": "Container", "default": {"cpu": "1"}, "max": {"cpu": "2"}}]}
    classes = [
        {
            "apiVersion": "scheduling.k8s.io/v1",
            "kind": "PriorityClass",
            "metadata": {"name": f"c{at}"},
            "value": at,
        }
        for at in range(count)
    ]
    budget = {"maxUnavailable": 1, "selector": {"matchLabels": {"app": "a"}}}
    return [
        *classes,
        *(_object("ResourceQuota", f"q{at}", {"hard": {"requests.cpu": f"{at + 9}"}}) for at in range(count)),
        *(_object("LimitRange", f"l{at}", limits) for at in range(count)),
        *(_object("PodDisruptionBudget", f"b{at}", budget, api="policy/v1") for at in range(count)),
        _pod(0, cpu="3"),
        _pod(1),
    ]


def terms(count: int) -> Objects:
    """A pod with so many tolerations, terms of affinity, variables, volumes and labels."""
    pod = _pod(0)
    expression = [{"key": "zone", "operator": "In", "values": [f"z{at}" for at in range(count)]}]
    pod["metadata"]["labels"] = {f"l{at}": "a" for at in range(count)}
    affinity = {"nodeSelectorTerms": [{"matchExpressions": expression}]}
    pod["spec"] |= {
        "tolerations": [{"key": f"k{at}", "operator": "Exists"} for at in range(count)],
        "affinity": {"nodeAffinity": {"requiredDuringSchedulingIgnoredDuringExecution": affinity}},
        "volumes": [{"name": f"v{at}", "emptyDir": {}} for at in range(count)],
    }
    container = pod["spec"]["containers"][0]
    container["env"] = [{"name": f"E{at}", "value": "$(E0)"} for at in range(count)]
    container["volumeMounts"] = [{"name": f"v{at}", "mountPath": f"/v{at}"} for at in range(count)]
    container["ports"] = [{"containerPort": at + 1, "name": f"p{at}"} for at in range(count)]
    return [pod]


def node(devices: int = 0, cores: int = 64, *, pods: int = 0, **settings: Any) -> dict[str, Any]:
    """A node with so many devices, cores and pods."""
    topology = [
        {"node_id": numa, "memory": 512 * GIB, "cores": [
            {"core_id": at, "socket_id": numa, "thread_ids": [at]} for at in range(numa * cores // 2, (numa + 1) * cores // 2)
        ]}
        for numa in range(2)
    ]  # fmt: skip
    spec: dict[str, Any] = {
        "kubernetesVersion": "v1.36.2",
        "machineInfo": {
            "num_cores": cores, "num_physical_cores": cores, "num_sockets": 2, "memory_capacity": 1024 * GIB, "topology": topology,
        },
        "rootFsCapacity": 1000 * GIB,
        "kubeletConfiguration": {
            "cpuManagerPolicy": "static", "reservedSystemCPUs": "0", "topologyManagerPolicy": "best-effort", "maxPods": 100_000, **settings,
        },
    }  # fmt: skip
    if devices:
        spec["devices"] = {
            "example.com/d": [{"id": f"d{at}", "numaNodes": [at % 2]} for at in range(devices)]
        }
    if pods:
        spec["pods"] = _running([_pod(at, memory=f"{1 + at % 50}Mi") for at in range(pods)])
    return _object("NodeProfile", "n0", spec, api="nodewright.dev/v1alpha1")


def _wants_devices(count: int) -> Objects:
    amounts = {"cpu": "2", "memory": "1Gi", "example.com/d": str(max(count // 4, 1))}
    pod = _pod(0)
    pod["spec"]["containers"][0]["resources"] = {"requests": amounts, "limits": amounts}
    return [pod]


def usage(count: int) -> str:
    """The memory of so many pods."""
    return "pod,memory\n" + "".join(f"default/p{at},{50 + at % 50}Mi\n" for at in range(count))


def scenario(count: int) -> dict[str, Any]:
    """So many pods that come to a node."""
    events = [{"after": "1s", "addPod": _pod(at)} for at in range(count)]
    return _object("Scenario", "s", {"node": node(), "events": events}, api="nodewright.dev/v1alpha1")


Files = Callable[[int], Mapping[str, Any]]
"""The contents of the files of a size: objects, a document, or text."""
_MANY, _WITH_DEVICES, _CORES = node(), "--node {node} -f {pods}", (16, 32, 64, 128)
_POD_SIZES = tuple(100 * size for size in SIZES)


def _on_node(objects: Callable[[int], Objects], **settings: Any) -> Files:
    return lambda count: {"pods": objects(count), "node": node(**settings)}


OBJECT_DIMENSIONS: Mapping[str, tuple[Callable[[int], Objects], int]] = {
    "containers": (containers, 200),
    "large containers": (large_containers, 200),
    "init containers": (init_containers, 200),
    "pods": (pods, 250),
    "namespaces": (namespaces, 100),
    "rules": (rules, 12),
    "terms": (terms, 200),
}
"""What makes the objects of a size, and the smallest size."""
OBJECT_COMMANDS = {
    "requests": "requests --node {node} -f {pods}",
    "requests --explain": "requests --explain --node {node} -f {pods}",
    "requests -o json": "requests -o json --node {node} -f {pods}",
    "admit": "admit --node {node} -f {pods}",
    "explain": "explain --node {node} -f {pods}",
    "preempt": "preempt --node {node} -f {pods}",
    "cgroups": "cgroups --node {node} -f {pods}",
    "lint": "lint --node {node} -f {pods}",
    "lint -o sarif": "lint -o sarif --node {node} -f {pods}",
    "quota": "quota -f {pods}",
    "fleet run": "fleet run --nodes {node} -f {pods}",
    "fleet minimise": "fleet minimise --nodes {node} --most 3 --pods {pods}",
    "agent --dry-run": "agent --dry-run --node {node} --workload-dir {pods/}",
}
SMALLER = {
    ("explain", "pods"): 62,
    **{("agent --dry-run", dimension): least // 8 for dimension, (_, least) in OBJECT_DIMENSIONS.items()},
}
"""The smallest size of `explain`, which takes at most 500 pods, and of the agent, which runs them."""
NODE_COMMANDS = {
    "node show": "node show --node {node}",
    "node export --nrt": "node export --nrt --node {node}",
    "admit": "admit --node {node} -f {pods}",
    "explain": "explain --node {node} -f {pods}",
    "preempt": "preempt --node {node} -f {pods}",
    "cgroups": "cgroups --all --node {node} -f {pods}",
    "lint": "lint --node {node} -f {pods}",
    "rehearse": "rehearse --node {node}",
    "upgrade": "upgrade --node {node} --from 1.33",
    "fleet run": "fleet run --nodes {node} -f {pods}",
    "fleet capacity": "fleet capacity --nodes {node} -f {pods}",
    "evict": "evict --node {node} --usage {usage}",
    "evict --advise": "evict --advise --duration 10m --node {node} --usage {usage}",
    "evict --timeline": "evict --timeline --duration 10m --node {node} --usage {usage}",
}
NODE_DIMENSIONS: Mapping[str, tuple[Files, int]] = {
    "devices": (lambda count: {"node": node(count), "pods": _wants_devices(count), "usage": usage(10)}, 1000),
    "CPUs": (lambda count: {"node": node(0, count), "pods": _wants_cpus(count), "usage": usage(10)}, 64),
    "pods of the node": (
        lambda count: {"node": node(pods=count), "pods": [_pod(9_999_999, cpu="63", memory="900Gi")], "usage": usage(count)},
        100,
    ),
}  # fmt: skip


def _wants_cpus(count: int) -> Objects:
    pod = _pod(0)
    amounts = {"cpu": str(max(count // 4, 1)), "memory": "1Gi"}
    pod["spec"]["containers"][0]["resources"] = {"requests": amounts, "limits": amounts}
    return [pod]


OTHERS: Mapping[str, tuple[str, str, Files, int]] = {
    "replay": ("events", "replay {scenario}", lambda count: {"scenario": scenario(count)}, 50),
    "verify": ("decisions", "verify {vectors}", lambda count: {"vectors": _vectors(count)}, 200),
    "fleet run, tables": (
        "pods", "fleet run --nodes {nodes} --pods {table}", lambda count: {
            "nodes": "name,cpu,memory\n" + "".join(f"n{at},8,32Gi\n" for at in range(20)),
            "table": "name,cpu,memory\n" + "".join(f"p{at},{100 + at % 7}m,1Gi\n" for at in range(count)),
        }, 400,
    ),
    "fleet run, nodes": (
        "nodes", "fleet run --nodes {nodes} --pods {table}", lambda count: {
            "nodes": "name,cpu,memory\n" + "".join(f"n{at},8,32Gi\n" for at in range(count)),
            "table": "name,cpu,memory\n" + "".join(f"p{at},100m,1Gi\n" for at in range(200)),
        }, 100,
    ),
    "rehearse --pods": (
        "pods", "rehearse --node {node} --pods {pods}", lambda count: {"node": _MANY, "pods": _running(pods(count))}, 60,
    ),
    "upgrade --pods": (
        "pods", "upgrade --node {node} --from 1.33 --pods {pods}", lambda count: {"node": _MANY, "pods": _running(pods(count))}, 60,
    ),
    "requests, live pods": (
        "pods", "requests --node {node} -f {pods}", lambda count: {"node": _MANY, "pods": _running(pods(count))}, 60,
    ),
    "lint, live pods": (
        "pods", "lint --node {node} -f {pods}", lambda count: {"node": _MANY, "pods": _running(pods(count))}, 60,
    ),
}  # fmt: skip


def _vectors(count: int) -> str:
    vector = {"family": "quantity", "input": {"op": "parse", "text": "1Gi"}, "expect": {}}
    return "".join(json.dumps({"id": str(at), **vector}) + "\n" for at in range(count))


def curves() -> Iterator[tuple[str, str, str, Files, int]]:
    """Command, dimension, command line, files and smallest size of each curve."""
    for dimension, (objects, least) in OBJECT_DIMENSIONS.items():
        for command, line in OBJECT_COMMANDS.items():
            yield command, dimension, line, _on_node(objects), SMALLER.get((command, dimension), least)
    for dimension, (files, least) in NODE_DIMENSIONS.items():
        for command, line in NODE_COMMANDS.items():
            yield command, dimension, line, files, least
    for command, (dimension, line, files, least) in OTHERS.items():
        yield command, dimension, line, files, least


def _written(files: Mapping[str, Any], folder: Path) -> dict[str, str]:
    """The paths of the files, by name; with a slash that of their directory."""
    paths = dict[str, str]()
    for name, value in files.items():
        (folder / name).mkdir()
        path = folder / name / ("in.csv" if isinstance(value, str) and "," in value[:20] else "in.json")
        document = {"apiVersion": "v1", "kind": "List", "items": value} if isinstance(value, list) else value
        path.write_text(document if isinstance(document, str) else json.dumps(document), "utf-8")
        paths |= {name: str(path), f"{name}/": str(path.parent)}
    return paths


def cpu_s(line: str, files: Mapping[str, Any], rounds: int = ROUNDS) -> float:
    """The least CPU time of some runs of a command line on these files.

    Units:  seconds.
    Errors: SystemExit for a command that does not answer.
    """
    with tempfile.TemporaryDirectory() as folder:
        paths = _written(files, Path(folder))
        words = [word if word[0] != "{" else paths[word[1:-1]] for word in line.split()]
        return min(_cpu_s_once(words) for _ in range(rounds))


def _cpu_s_once(words: Sequence[str]) -> float:
    """The CPU time of a run in a fork of this process: nothing that an earlier run keeps is there."""
    reading, writing = os.pipe()
    pid = os.fork()
    if pid == 0:
        output = io.TextIOWrapper(io.BytesIO(), "utf-8")
        began, code = time.process_time(), 70
        with contextlib.redirect_stdout(output), contextlib.redirect_stderr(output):
            code = run(words)
        took_s = time.process_time() - began
        output.seek(0)
        os.write(writing, json.dumps([code, took_s, output.read()[:1000]]).encode())
        os._exit(0)
    os.close(writing)
    with open(reading, "rb") as answer:  # noqa: PTH123 - a descriptor
        content = answer.read()
    os.waitpid(pid, 0)
    code, took_s, text = json.loads(content)
    if code not in (0, 1, 3):
        raise SystemExit(f"{' '.join(words)}: exit code {code}: {text}")
    return float(took_s)


def measured(line: str, files: Files, least: int, sizes: Sequence[int] = SIZES) -> dict[str, Any]:
    """The curve of a command line: CPU seconds by size, and the exponent of what the size costs.

    A curve above the limit is measured again, because other processes take away caches: the least costs count.
    """
    base, costs_s = cpu_s(line, files(1)), [cpu_s(line, files(size * least)) for size in sizes]
    for _ in range(REPEATS):
        found = _exponent_of(base, costs_s, least, sizes)
        if found is None or found <= LIMIT:
            break
        base = min(base, cpu_s(line, files(1)))
        costs_s = [
            min(cost_s, cpu_s(line, files(size * least))) for size, cost_s in zip(sizes, costs_s, strict=True)
        ]
    return {
        "commit": commit(),
        "exponent": _exponent_of(base, costs_s, least, sizes),
        "smallestSeconds": round(base, 4),
        "cpuSeconds": [[size * least, round(cost_s, 4)] for size, cost_s in zip(sizes, costs_s, strict=True)],
    }


def _exponent_of(base: float, costs_s: Sequence[float], least: int, sizes: Sequence[int]) -> float | None:
    if costs_s[-1] - costs_s[0] <= LEAST_S:
        return None
    points = [
        (float(size * least), max(cost_s - base, NOISE_S))
        for size, cost_s in zip(sizes, costs_s, strict=True)
    ]
    return round(exponent(points), 2)


def main(arguments: Sequence[str]) -> int:
    """Measure the curves of these commands or dimensions, or all, into the figures; 1 where an exponent is above the limit."""
    for name in COMMANDS:
        load_command(name)
    gc.collect()
    gc.freeze()
    gc.set_threshold(*COMMAND_THRESHOLDS)
    figures: dict[str, dict[str, Any]] = {}
    for command, dimension, line, files, least in curves():
        if not arguments or {command, dimension, f"{command} by {dimension}"} & set(arguments):
            curve = measured(line, files, least)
            figures.setdefault(command, {})[dimension] = curve
            mark = " <-- above the limit" if (curve["exponent"] or 0) > LIMIT else ""
            print(f"{command} by {dimension}: {curve['exponent']} {curve['cpuSeconds']}{mark}", flush=True)
    if not figures:
        print(f"no command or dimension of that name: {' '.join(arguments)}")
        return 2
    known = json.loads(FIGURES.read_text("utf-8"))["curves"] if FIGURES.exists() else {}
    for command, by_dimension in figures.items():
        known.setdefault(command, {}).update(by_dimension)
    above = {
        f"{command} by {dimension}": curve["exponent"]
        for command, by_dimension in known.items()
        for dimension, curve in by_dimension.items()
        if (curve["exponent"] or 0) > LIMIT
    }
    date = f"{datetime.now(UTC):%Y-%m-%d}"
    document = {"limit": LIMIT, "above": above, "seed": SEED, "date": date, "curves": known}
    FIGURES.write_text(json.dumps(document, indent=1) + "\n", "utf-8")
    print(f"above {LIMIT}: {above or 'none'}")
    return int(bool(above))
