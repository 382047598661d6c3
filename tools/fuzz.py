"""Broken input for everything that reads what people bring: `python -m tools.fuzz` or `make fuzz`.

Good input is damaged at random, from a seed: its bytes, or the values in it. A command may answer or refuse with a
message; an exception, and more than a few seconds for one input, is a finding: it is printed with its seed and number.
"""

import argparse
import contextlib
import io
import json
import os
import random
import resource
import shutil
import signal
import sys
import tempfile
import time
import traceback
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from functools import cache
from pathlib import Path
from typing import Any

from nodewright.cli.app import run
from nodewright.errors import InputError
from nodewright.formats.documents import parse_documents
from nodewright.output.exit_codes import ERROR
from nodewright.profiles.catalogue import recorded_machines
from nodewright.values.idset import CPUSet, IdSetError
from nodewright.values.quantity import Quantity, QuantityError
from tools.fuzz_targets import file_targets
from tools.source import ROOT

SLOW_S = 20.0
"""CPU time of one input."""
MORE_BYTES = 1 << 30
"""What an input may need beside what the process has already."""

TOKENS = (
    b"[", b"{", b"]", b"}", b"&a ", b"*a", b"<<: ", b"- ", b": ", b"? ", b"---\n", b"...\n", b"!!python/name:os ",
    b"!!binary ", b"!!set ", b"| \n", b">\n", b'"', b"'", b"#", b"%", b"\t", b"\x00", b"\xff", b"\xef\xbb\xbf",
    b"\xed\xa0\x80", b"\r", b"\n  ", b"1e999", b"-1", b"0x1F", b"0o17", b"1_000", b".inf", b".nan", b"null", b"~",
    b"yes", b"1GB2", b"9" * 40, b"2026-01-01", b"22:22", b"\\u0000", b"[" * 300, b"{a: " * 200, b"a: &a [*a]\n",
)  # fmt: skip

ODD_VALUES: tuple[Any, ...] = (
    None, True, False, 0, -1, 1, 2**31, 2**63, 2**64, -(2**63) - 1, 10**30, 0.5, 1e300, "", " ", "0", "-1", "1GB2",
    "1e30", "9Ei", "100m", "0.1n", "NaN", "0-3", "3-0", "a/b/c", "../x", "x" * 300, "\u0000", "\ud7ff", "default",
    "Always", "cpu", "hugepages-2Mi", "hugepages-0", "static", "9" * 4400, "v1." + "9" * 4400, "9" * 4400 + "%", [], [None], [[]], {}, {"": ""}, {"cpu": None}, {"cpu": "1"}, [1, "a"],
)  # fmt: skip

Reader = Callable[[bytes], object]


@dataclass(frozen=True, slots=True)
class Target:
    """Something that reads, the errors it may raise, and good input for it."""

    read: Reader
    samples: tuple[bytes, ...]
    refusals: tuple[type[Exception], ...] = ()


@dataclass(frozen=True, slots=True)
class Finding:
    """Input that a reader neither took nor refused."""

    target: str
    number: int
    """The how-manieth input of the seed it was."""
    content: bytes
    trouble: str


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
spec: {replicas: 3, template: {spec: {containers: [{name: db, resources: &r {requests: {cpu: 1}}}, {name: b, resources: *r}]}}}
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


@cache
def targets() -> Mapping[str, Target]:
    """Everything that is tried, by name."""
    pods, profiles = (POD, *_files("examples/**/*.yaml")), (PROFILE, *_files("examples/nodes/*.yaml"))
    machine = json.dumps(recorded_machines()["1s-2n-4c-smt2"]).encode()
    return {
        **{name: Target(_command(line), samples) for name, (line, samples) in file_targets().items()},
        "quantity": Target(
            lambda content: Quantity.parse(_text(content)),
            (b"1.5Gi", b"250m", b"-1e3", b"+.5E", b"100000000000000000000"),
            (QuantityError,),
        ),
        "cpu set": Target(
            lambda content: CPUSet.parse(_text(content)), (b"0-3,7,9-11", b"", b"0,2,4,6"), (IdSetError,)
        ),
        "node show": Target(_command("node show --node FILE"), profiles),
        "kubelet configuration": Target(
            _command("node capture --kubelet-config FILE --lscpu OTHER", LSCPU), (CONFIGURATION,)
        ),
        "lscpu": Target(_command("node capture --lscpu FILE"), (LSCPU,)),
        "machine info": Target(_command("node capture --machine-info FILE"), (machine,)),
        "vectors": Target(
            _command("verify --show 1 FILE"),
            (b'{"id":"a","family":"quantity","input":{"op":"parse","text":"1"}}\n',),
        ),
        "requests": Target(_command("requests --memory-capacity 8Gi -f FILE"), pods),
        "pods to admit": Target(_command("admit --node laptop-i7-1370p -f FILE"), pods),
        "scenarios": Target(_command("replay FILE -o json"), _files("examples/scenarios/*.yaml")),
        "scenarios on another node": Target(
            _command("replay FILE --node vm-4"), _files("examples/scenarios/*.yaml")
        ),
        "usage": Target(
            _command("evict --node examples/eviction/node.yaml --usage FILE -o json"),
            ((ROOT / "examples/eviction/summary.json").read_bytes(), USAGE),
        ),
        "usage in columns": Target(
            _command("evict --node examples/eviction/node.yaml --usage TABLE"),
            (
                b"pod,container,memory,rootfs,logs,inodes,processes\nshop/web,web,2Gi,1Gi,20Mi,500,64\nshop/db,,5Gi,,,,9\n",
            ),
        ),
        "node to admit to": Target(_command("admit --node FILE -f OTHER", POD), profiles),
        "configuration to admit by": Target(
            _command("admit --node vm-4 --kubelet-config FILE -f OTHER", POD), (CONFIGURATION,)
        ),
    }


def damaged(samples: tuple[bytes, ...], chance: random.Random) -> bytes:
    """A sample with some damage to its bytes or to its values."""
    sample = chance.choice(samples)
    if chance.random() < 0.5:
        documents = _documents(sample)
        if documents and isinstance(documents[0], dict | list):
            document = json.loads(json.dumps(chance.choice(documents)))
            for _ in range(chance.choice((1, 1, 1, 2, 4))):
                _change_a_value(document, chance)
            return json.dumps(document).encode()
    return _with_damaged_bytes(sample, samples, chance)


def _change_a_value(document: Any, chance: random.Random) -> None:
    """Go down to some member or item, and remove, replace, repeat or misspell it."""
    while isinstance(document, dict | list) and document:
        keys: list[Any] = list(document) if isinstance(document, dict) else list(range(len(document)))
        key = chance.choice(keys)
        below = document[key]
        if isinstance(below, dict | list) and below and chance.random() < 0.85:
            document = below
            continue
        other = json.loads(json.dumps(chance.choice(ODD_VALUES)))
        match chance.randrange(6):
            case 0:
                del document[key]
            case 1 if isinstance(document, dict):
                document[f"{key}{chance.choice(('s', ' ', '.', '/'))}"] = document.pop(key)
            case 2 if isinstance(document, list):
                document.append(below)
            case _:
                document[key] = other
        return


def _with_damaged_bytes(sample: bytes, samples: tuple[bytes, ...], chance: random.Random) -> bytes:
    content = bytearray(sample)
    for _ in range(chance.choice((1, 1, 2, 3, 8))):
        at, end = sorted(chance.randrange(len(content) + 1) for _ in range(2))
        match chance.randrange(6):
            case 0:
                content[at:at] = chance.choice(TOKENS)
            case 1:
                content[at : min(end, at + 20)] = chance.choice(TOKENS)
            case 2:
                del content[at:end]
            case 3:
                content[at:at] = content[at:end]
            case 4:
                other = chance.choice(samples)
                content[at:at] = other[chance.randrange(len(other) + 1) :][:200]
            case _:
                content[at : at + 1] = bytes([chance.randrange(256)])
    return bytes(content)


@cache
def _documents(sample: bytes) -> list[Any]:
    try:
        return [document.value for document in parse_documents(sample, "sample")]
    except InputError:
        return []


def _text(content: bytes) -> str:
    return content.decode("utf-8", "surrogateescape")


def _files(pattern: str) -> tuple[bytes, ...]:
    return tuple(path.read_bytes() for path in sorted(ROOT.glob(pattern)))


def _command(line: str, other: bytes = b"") -> Reader:
    """Runs the command on a file with the content; its output is dropped."""

    def read(content: bytes) -> None:
        with tempfile.TemporaryDirectory() as directory:
            files = {"FILE": "in.json", "TABLE": "in.csv", "OTHER": "other.json"}
            names = {word: Path(directory, name) for word, name in files.items()}
            names["FILE"].write_bytes(content)
            names["TABLE"].write_bytes(content)
            names["OTHER"].write_bytes(other)
            arguments = [_argument(word, names, Path(directory), content) for word in line.split()]
            printed, dropped = io.StringIO(), io.StringIO()
            with (
                contextlib.redirect_stdout(printed),
                contextlib.redirect_stderr(dropped),
                contextlib.chdir(ROOT),
            ):
                code = run(arguments)
            if line.endswith("-o json") and code != ERROR:
                json.loads(printed.getvalue(), parse_constant=_refuse_constant)

    return read


def _argument(word: str, names: Mapping[str, Path], directory: Path, content: bytes) -> str:
    """The word; for TREE:SOURCE:FILE a copy of the directory with the content in that file."""
    if not word.startswith("TREE:"):
        return str(names.get(word, word))
    _, source, file = word.split(":")
    shutil.copytree(ROOT / source, directory / "tree")
    (directory / "tree" / file).parent.mkdir(parents=True, exist_ok=True)
    (directory / "tree" / file).write_bytes(content)
    return str(directory / "tree")


def _refuse_constant(name: str) -> None:
    raise ValueError(f"{name} is not JSON")


def inputs(name: str, seed: int) -> Iterator[bytes]:
    """Damaged input for the target without end, the same for the same seed."""
    chance = random.Random(f"{name} {seed}")
    samples = targets()[name].samples
    while True:
        yield damaged(samples, chance)


def tried(name: str, number: int, content: bytes) -> Finding | None:
    """What is wrong with how the target reads the input; None: nothing."""
    target = targets()[name]
    began_s = time.process_time()
    try:
        with _limited_time():
            target.read(content)
    except target.refusals:
        pass
    except Exception as error:  # noqa: BLE001 - anything else is what we look for
        place = traceback.extract_tb(error.__traceback__)[-1]
        where = f"{Path(place.filename).name}:{place.lineno}"
        return Finding(name, number, content, f"{type(error).__name__} at {where}: {error}"[:300])
    took_s = time.process_time() - began_s
    return Finding(name, number, content, f"took {took_s:.1f} s") if took_s > SLOW_S else None


@contextlib.contextmanager
def _limited_time() -> Iterator[None]:
    """Within this context, TimeoutError is raised after `SLOW_S` of CPU time."""

    def stop(_number: int, _frame: object) -> None:
        raise TimeoutError(f"more than {SLOW_S:.0f} s")

    previous = signal.signal(signal.SIGPROF, stop)
    signal.setitimer(signal.ITIMER_PROF, SLOW_S)
    try:
        yield
    finally:
        signal.setitimer(signal.ITIMER_PROF, 0)
        signal.signal(signal.SIGPROF, previous)


def tried_for_long(name: str, seed: int, *, seconds: float, count: int) -> int:
    """Tries a target in a process of its own with bounded memory, and prints the findings; their number, at most 100."""
    pid = os.fork()
    if pid == 0:
        found_count = 100
        try:
            used_bytes = int(Path("/proc/self/statm").read_text("ascii").split()[0]) * resource.getpagesize()
            resource.setrlimit(resource.RLIMIT_AS, (used_bytes + MORE_BYTES, used_bytes + MORE_BYTES))
            found_count = min(_tried_inputs(name, seed, seconds, count), 100)
        finally:
            sys.stdout.flush()
            os._exit(found_count)
    return os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1])


def _tried_inputs(name: str, seed: int, seconds: float, count: int) -> int:
    findings: set[str] = set()
    end_s, number = time.monotonic() + seconds, 0
    for number, content in enumerate(inputs(name, seed), 1):
        finding = tried(name, number, content)
        if finding and finding.trouble not in findings:
            findings.add(finding.trouble)
            print(f"{name}, seed {seed}, input {number}: {finding.trouble}\n  {content[:2000]!r}", flush=True)
        if time.monotonic() > end_s or number == count:
            break
    print(f"{name}: {number} inputs, seed {seed}, {len(findings)} findings", flush=True)
    return len(findings)


def main(arguments: list[str]) -> int:
    """Try every target for some seconds; 1 if there are findings."""
    parser = argparse.ArgumentParser(description="Broken input for everything that reads.")
    parser.add_argument("--seconds", type=float, default=60, help="for each target")
    parser.add_argument(
        "--count", type=int, default=0, help="for each target; default: as many as there is time for"
    )
    parser.add_argument("--seed", type=int, default=None, help="default: a new one")
    parser.add_argument("--target", choices=targets(), action="append", help="default: all")
    options = parser.parse_args(arguments)
    seed = random.randrange(2**32) if options.seed is None else options.seed
    names = options.target or list(targets())
    failed = [
        name
        for name in names
        if tried_for_long(name, seed, seconds=options.seconds, count=options.count) != 0
    ]
    print(f"seed {seed}: {len(names)} targets, findings in {len(failed)}: {', '.join(failed) or 'none'}")
    return 1 if failed else 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
