"""A joined agent that is killed, and cut off from its API server, at any moment: no pod runs twice and none is forgotten.

By default a few times; `make soak` kills it 300 times and cuts it off 100 times (`CLUSTER_KILLS`, `CLUSTER_PARTITIONS`).
"""

import json
import os
import random
import tempfile
import time
from collections.abc import Iterator
from pathlib import Path

import pytest
from tests.support.cluster_bench import ClusterBench, cluster_bench
from tests.support.cluster_churn import ClusterChurn
from tests.support.partition_proxy import Link, PartitionProxy
from tests.support.real_api_server import ASSETS

from tools.source import commit

pytestmark = [
    pytest.mark.live,
    pytest.mark.slow,
    pytest.mark.skipif(os.geteuid() != 0, reason="an agent makes cgroups: that takes root"),
    pytest.mark.skipif(not ASSETS, reason="KUBEBUILDER_ASSETS names no kube-apiserver and etcd"),
    pytest.mark.skipif(len(os.sched_getaffinity(0)) < 2, reason="a CPU of a pod's own takes two CPUs"),
]
SEED = int(os.environ.get("FAULT_SEED") or random.SystemRandom().randrange(1_000_000))
KILLS = int(os.environ.get("CLUSTER_KILLS") or 5)
PARTITIONS = int(os.environ.get("CLUSTER_PARTITIONS") or 4)
CONFIGURATION = {
    "apiVersion": "kubelet.config.k8s.io/v1beta1",
    "kind": "KubeletConfiguration",
    "cpuManagerPolicy": "static",
    "reservedSystemCPUs": "0",
    "evictionHard": {},
}


@pytest.fixture
def proxy() -> Iterator[PartitionProxy]:
    with PartitionProxy() as proxy:
        yield proxy


@pytest.fixture
def bench(proxy: PartitionProxy, tmp_path: Path) -> Iterator[ClusterBench]:
    (tmp_path / "kubelet.yaml").write_text(json.dumps(CONFIGURATION), "utf-8")
    with cluster_bench(tmp_path, "--config", str(tmp_path / "kubelet.yaml"), proxy=proxy) as bench:
        bench.agent.start()
        bench.wait_until(bench.is_ready)
        yield bench


@pytest.fixture
def churn(bench: ClusterBench) -> Iterator[ClusterChurn]:
    with (
        tempfile.TemporaryDirectory(prefix="nodewright-churn-") as folder,
        ClusterChurn(bench, Path(folder), SEED) as churn,
    ):
        yield churn


def test_an_agent_that_is_killed_runs_no_pod_twice_and_forgets_none(
    bench: ClusterBench, churn: ClusterChurn
) -> None:
    choose, began_s = random.Random(SEED), time.monotonic()
    for _ in range(KILLS):
        churn_for(churn, choose.uniform(0.0, 2.5))
        bench.agent.kill()
        churn_for(churn, choose.uniform(0.0, 0.5))
        bench.agent.start()
    finish("kills", churn, KILLS, began_s)


def test_an_agent_that_is_cut_off_runs_no_pod_twice_and_forgets_none(
    proxy: PartitionProxy, churn: ClusterChurn
) -> None:
    choose, began_s = random.Random(SEED), time.monotonic()
    for _ in range(PARTITIONS):
        churn_for(churn, choose.uniform(0.0, 1.5))
        proxy.set_link(choose.choice((Link.REFUSED, Link.SILENT, Link.SLOW)))
        churn_for(churn, choose.choice((0.2, 1.0, 3.0)))
        proxy.set_link(Link.WHOLE)
    finish("partitions", churn, PARTITIONS, began_s)


def churn_for(churn: ClusterChurn, seconds: float) -> None:
    """Pods are created and deleted for so long."""
    deadline = time.monotonic() + seconds
    while True:
        churn.step()
        if (left_s := deadline - time.monotonic()) <= 0:
            break
        time.sleep(min(0.3, left_s))


def finish(what: str, churn: ClusterChurn, times: int, began_s: float) -> None:
    """All pods come to rest, then end; nothing was wrong at any time."""
    churn.settle()
    churn.remove_all()
    kept = os.environ.get("CLUSTER_FIGURES")
    if kept is not None:
        figures = {
            what: times,
            "seed": SEED,
            "commit": commit(),
            "seconds": round(time.monotonic() - began_s),
            "pods": churn.counts,
            "wrong": churn.wrong,
            "date": time.strftime("%Y-%m-%d"),
            "load_average": round(os.getloadavg()[1], 1),
        }
        place = Path(kept)
        place.with_name(f"{what}-{place.name}").write_text(json.dumps(figures, indent=2) + "\n", "utf-8")
    assert not churn.wrong, (SEED, churn.wrong, churn.bench.agent.log_tail())
