"""A real kube-scheduler with the extender over nodes that decide as kubelets: no rejections, also when it is killed."""

import argparse
import asyncio
from collections.abc import Iterator

import pytest
from tests.support.real_api_server import needs_real, real_api_server

from tools.scheduling_bench import PHASES, Bench

pytestmark = [
    pytest.mark.live,
    pytest.mark.slow,
    needs_real("kube-scheduler"),
]


@pytest.fixture(scope="module")
def bench(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Bench]:
    folder = tmp_path_factory.mktemp("scheduling")
    with real_api_server(folder) as server:
        yield Bench(server, folder, argparse.Namespace(nodes=4, pods=40, seed=1))


def test_a_scheduler_alone_has_pods_rejected(bench: Bench) -> None:
    name = "kube-scheduler alone"
    result = asyncio.run(bench.phase(name, **PHASES[name]))
    assert result.rejected > 0


@pytest.mark.parametrize("name", [name for name, phase in PHASES.items() if phase["has_extender"]])
def test_with_the_extender_no_pod_is_rejected(bench: Bench, name: str) -> None:
    result = asyncio.run(bench.phase(name, **PHASES[name]))
    assert (result.rejected, result.placed) == (0, result.pods)
