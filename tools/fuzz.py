"""Broken input for everything that reads what people bring: `python -m tools.fuzz` or `make fuzz`.

Good input is damaged at random, from a seed; a reader may take it or refuse it with its own error. Anything
else, and more than a few seconds for one input, is a finding: it is printed with the command that repeats it.
"""

import argparse
import random
import sys
import time
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass

from nodewright.values.idset import CPUSet, IdSetError
from nodewright.values.quantity import Quantity, QuantityError
from nodewright.world.errors import InputError
from nodewright.world.manifests import workloads_from
from nodewright.world.profiles import profile_from
from tools.source import ROOT

SLOW_S = 5.0

TOKENS = (
    b"[", b"{", b"]", b"}", b"&a ", b"*a", b"<<: ", b"- ", b": ", b"? ", b"---\n", b"...\n", b"!!python/name:os ",
    b"!!binary ", b"!!set ", b"| \n", b">\n", b'"', b"'", b"#", b"%", b"\t", b"\x00", b"\xff", b"\xef\xbb\xbf",
    b"\xed\xa0\x80", b"\r", b"\n  ", b"1e999", b"-1", b"0x1F", b"0o17", b"1_000", b".inf", b".nan", b"null", b"~",
    b"yes", b"1GB2", b"9" * 40, b"2026-01-01", b"22:22", b"\\u0000", b"[" * 300, b"{a: " * 200, b"a: &a [*a]\n",
)  # fmt: skip

Reader = Callable[[bytes], object]


@dataclass(frozen=True, slots=True)
class Target:
    """Something that reads, the errors it may raise, and good input for it."""

    read: Reader
    refusals: tuple[type[Exception], ...]
    samples: tuple[bytes, ...]


@dataclass(frozen=True, slots=True)
class Finding:
    """Input that a reader neither took nor refused."""

    target: str
    number: int
    """The how-manieth input of the seed it was."""
    content: bytes
    trouble: str


def _text(read: Callable[[str], object]) -> Reader:
    return lambda content: read(content.decode("utf-8", "surrogateescape"))


def _files(*patterns: str) -> tuple[bytes, ...]:
    return tuple(path.read_bytes() for pattern in patterns for path in sorted(ROOT.glob(pattern)))


POD = b"""apiVersion: v1
kind: Pod
metadata: {name: web, namespace: shop, labels: {app: web}}
spec:
  containers:
  - name: main
    resources:
      requests: {cpu: 250m, memory: "1.5Gi"}
      limits: {cpu: "2", memory: 2Gi}
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
    - {node_id: 0, memory: 8589934592, cores: [{core_id: 0, thread_ids: [0, 1], socket_id: 0}]}
  kubeletConfiguration: {kubeReserved: {cpu: 100m}}
  devices: {vendor.example/gpu: [{id: gpu0, numaNodes: [0], healthy: true}]}
"""


def targets() -> Mapping[str, Target]:
    """Everything that is tried, by name."""
    return {
        "manifests": Target(
            lambda content: workloads_from(content, "fuzz.yaml"),
            (InputError,),
            (POD, *_files("examples/**/*.yaml", "examples/**/*.json")),
        ),
        "profile": Target(lambda content: profile_from(content, "fuzz.yaml"), (InputError,), (PROFILE,)),
        "quantity": Target(
            _text(Quantity.parse),
            (QuantityError,),
            (b"1.5Gi", b"250m", b"-1e3", b"+.5E", b"100000000000000000000"),
        ),
        "cpu set": Target(_text(CPUSet.parse), (IdSetError,), (b"0-3,7,9-11", b"", b"0,2,4,6")),
    }


def damaged(samples: tuple[bytes, ...], chance: random.Random) -> bytes:
    """A sample with some damage."""
    content = bytearray(chance.choice(samples))
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


def inputs(name: str, seed: int) -> Iterator[bytes]:
    """Damaged input for the target without end, the same for the same seed."""
    chance = random.Random(f"{name} {seed}")
    samples = targets()[name].samples
    while True:
        yield damaged(samples, chance)


def tried(name: str, number: int, content: bytes) -> Finding | None:
    """What is wrong with how the target reads the input; None: nothing."""
    target = targets()[name]
    began_s = time.monotonic()
    try:
        target.read(content)
    except target.refusals:
        pass
    except Exception as error:  # noqa: BLE001 - anything else is what we look for
        return Finding(name, number, content, f"{type(error).__name__}: {error}"[:300])
    took_s = time.monotonic() - began_s
    return Finding(name, number, content, f"took {took_s:.1f} s") if took_s > SLOW_S else None


def main(arguments: list[str]) -> int:
    """Try every target for some seconds; 1 if there are findings."""
    parser = argparse.ArgumentParser(description="Broken input for everything that reads.")
    parser.add_argument("--seconds", type=float, default=60, help="for each target")
    parser.add_argument("--seed", type=int, default=None, help="default: a new one")
    parser.add_argument("--target", choices=targets(), action="append", help="default: all")
    options = parser.parse_args(arguments)
    seed = random.randrange(2**32) if options.seed is None else options.seed
    findings = 0
    for name in options.target or targets():
        end_s, number = time.monotonic() + options.seconds, 0
        for number, content in enumerate(inputs(name, seed), 1):
            if finding := tried(name, number, content):
                findings += 1
                print(f"{name}, seed {seed}, input {number}: {finding.trouble}\n  {content!r}")
            if time.monotonic() > end_s or findings > 20:
                break
        print(f"{name}: {number} inputs, seed {seed}")
    return 1 if findings else 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
