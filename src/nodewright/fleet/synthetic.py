"""Synthetic fleets and workloads, generated from a seed as rows of CSV tables."""

from collections.abc import Iterator
from random import Random

import msgspec

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


class SyntheticFleet(msgspec.Struct, frozen=True, kw_only=True):
    """Parameters of a synthetic fleet; the same parameters give the same rows."""

    seed: int
    nodes: int
    pods: int
    cpu_load: float = 0.8
    """Average share of all CPUs that pods request in the steady state."""


class _Kind(msgspec.Struct, frozen=True):
    namespace: str
    cpu_milli: int
    gib: float
    gpus: int
    is_guaranteed: bool
    runs_s: int
    is_controlled: bool


def node_rows(fleet: SyntheticFleet) -> Iterator[tuple[str, ...]]:
    """The rows of the nodes table, without `NODE_HEADER`."""
    for number, (_, cpus, gib, gpus) in enumerate(_nodes(fleet)):
        zone = _ZONES[number % len(_ZONES)]
        yield (
            f"node-{number:05d}",
            str(cpus),
            f"{gib}Gi",
            f"topology.kubernetes.io/zone={zone}",
            str(gpus or ""),
        )


def pod_rows(fleet: SyntheticFleet) -> Iterator[tuple[str, ...]]:
    """The rows of the pods table in the order of arrival, without `POD_HEADER`.

    Arrivals are a Poisson process whose rate gives the configured load.
    """
    random = Random(fleet.seed + 1)
    kinds = [_kind(random) for _ in range(_KINDS)]
    nodes = _nodes(fleet)
    has_gpus = any(node[3] for node in nodes)
    cpus_milli = 1000 * sum(node[1] for node in nodes)
    mean_cpu_milli_s = sum(kind.cpu_milli * kind.runs_s for kind in kinds) / len(kinds)
    gap_s = mean_cpu_milli_s / max(fleet.cpu_load * cpus_milli, 1)
    now_s = 0.0
    for number in range(fleet.pods):
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


def _nodes(fleet: SyntheticFleet) -> list[tuple[int, int, int, int]]:
    random = Random(fleet.seed)
    return random.choices(_NODES, [weight for weight, *_ in _NODES], k=fleet.nodes)


def _kind(random: Random) -> _Kind:
    cpu_milli = random.choices([milli for _, milli in _CPUS_MILLI], [weight for weight, _ in _CPUS_MILLI])[0]
    return _Kind(
        namespace=random.choice(_NAMESPACES),
        cpu_milli=cpu_milli,
        gib=cpu_milli / 1000 * random.choice(_GIB_OF_CPU),
        gpus=1 if random.random() < _GPU_SHARE else 0,
        is_guaranteed=random.random() < 0.5,
        runs_s=random.choice(_RUNS_S),
        is_controlled=random.random() < 0.5,
    )
