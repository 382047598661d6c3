"""Fleets and workloads that nobody has: drawn from a seed, as the rows of our own tables."""

from collections.abc import Iterator
from dataclasses import dataclass
from random import Random

NODE_HEADER = ("name", "cpu", "memory", "labels", "nvidia.com/gpu")
POD_HEADER = ("name", "namespace", "cpu", "memory", "nvidia.com/gpu", "qos", "arrives", "runs", "controlled")

# Weight, CPUs, GiB, GPUs.
_NODES = ((40, 16, 64, 0), (30, 32, 128, 0), (20, 64, 256, 0), (10, 96, 384, 8))
_CPUS_MILLI = ((30, 250), (20, 500), (15, 1000), (15, 2000), (10, 4000), (6, 8000), (3, 12000), (1, 16000))
_GIB_OF_CPU = (1, 2, 4, 8)
_RUNS_S = (60, 300, 900, 3600, 14_400)
_NAMESPACES = ("web", "data", "batch", "ml")
_ZONES = "abc"
_GPU_SHARE = 0.05
_KINDS = 60


@dataclass(frozen=True, slots=True, kw_only=True)
class Draw:
    """What is to be drawn: the same draw gives the same rows."""

    seed: int
    nodes: int
    pods: int
    load: float = 0.8
    """The share of all CPUs that pods ask for on average, once as many have come as go."""


@dataclass(frozen=True, slots=True)
class _Kind:
    namespace: str
    cpu_milli: int
    gib: float
    gpus: int
    is_guaranteed: bool
    runs_s: int
    is_controlled: bool


def node_rows(draw: Draw) -> Iterator[tuple[str, ...]]:
    """The rows of the nodes, after `NODE_HEADER`."""
    for number, (_, cpus, gib, gpus) in enumerate(_nodes(draw)):
        zone = _ZONES[number % len(_ZONES)]
        yield (
            f"node-{number:05d}",
            str(cpus),
            f"{gib}Gi",
            f"topology.kubernetes.io/zone={zone}",
            str(gpus or ""),
        )


def pod_rows(draw: Draw) -> Iterator[tuple[str, ...]]:
    """The rows of the pods in the order of their arrival, after `POD_HEADER`, one by one.

    They come at random at an even rate that keeps the nodes as busy as is wished.
    """
    random = Random(draw.seed + 1)
    kinds = [_kind(random) for _ in range(_KINDS)]
    nodes = _nodes(draw)
    has_gpus = any(one[3] for one in nodes)
    cpus_milli = 1000 * sum(one[1] for one in nodes)
    busy = sum(kind.cpu_milli * kind.runs_s for kind in kinds) / len(kinds)
    gap_s = busy / max(draw.load * cpus_milli, 1)
    now_s = 0.0
    for number in range(draw.pods):
        now_s += random.expovariate(1) * gap_s
        kind = kinds[random.randrange(_KINDS)]
        yield (
            f"pod-{number:07d}",
            kind.namespace,
            f"{kind.cpu_milli}m",
            f"{int(kind.gib * 1024)}Mi",
            str(kind.gpus if has_gpus and kind.gpus else ""),
            "" if kind.is_guaranteed else "Burstable",
            f"{now_s:.3f}",
            str(max(round(kind.runs_s * (0.5 + random.random())), 1)),
            "yes" if kind.is_controlled else "",
        )


def _nodes(draw: Draw) -> list[tuple[int, int, int, int]]:
    random = Random(draw.seed)
    return random.choices(_NODES, [one[0] for one in _NODES], k=draw.nodes)


def _kind(random: Random) -> _Kind:
    cpu_milli = random.choices([one[1] for one in _CPUS_MILLI], [one[0] for one in _CPUS_MILLI])[0]
    return _Kind(
        namespace=random.choice(_NAMESPACES),
        cpu_milli=cpu_milli,
        gib=cpu_milli / 1000 * random.choice(_GIB_OF_CPU),
        gpus=1 if random.random() < _GPU_SHARE else 0,
        is_guaranteed=random.random() < 0.5,
        runs_s=random.choice(_RUNS_S),
        is_controlled=random.random() < 0.5,
    )
