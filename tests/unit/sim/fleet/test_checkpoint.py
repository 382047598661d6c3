"""A run that is broken off goes on as if it never had been."""

import pickle
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from msgspec.structs import replace

from nodewright.fleet import Checkpoint, Options, Retry, run
from nodewright.model.fleet import FleetNode, FleetPod
from nodewright.sim.fleet.checkpoint import CheckpointError, identity, restore
from nodewright.sim.fleet.play import Play, Progress, Setup
from nodewright.sim.fleet.values import FleetResult
from nodewright.testing.fleets import a_template, some_nodes, some_pods
from nodewright.testing.nodes import a_profile
from nodewright.world.errors import InputError

STRICT = a_profile(
    cpuManagerPolicy="static", reservedSystemCPUs="0", topologyManagerPolicy="single-numa-node"
)


def fleet() -> tuple[list[FleetNode], list[FleetPod]]:
    """More than fits, with pods that are refused, pods that make way, and others that wait for a zone."""
    kinds = [
        some_pods(150, a_template("cpu=2 memory=1Gi"), "small", runs_s=7),
        some_pods(20, a_template("cpu=5 memory=1Gi"), "wide", runs_s=3, controlled=True),
        some_pods(20, a_template("cpu=3 memory=1Gi", priority=5), "first", runs_s=4),
        some_pods(10, a_template("cpu=1", nodeSelector={"zone": "z1"}), "there", runs_s=4),
    ]
    pods = [pod for kind in kinds for pod in kind]
    late = [replace(pod, arrives_s=number * 7 % 50) for number, pod in enumerate(pods)]
    labels = [{"zone": f"z{number % 3}"} for number in range(6)]
    nodes = [replace(node, labels=own) for node, own in zip(some_nodes(6, STRICT), labels, strict=True)]
    return nodes, sorted(late, key=lambda pod: pod.arrives_s)


def stopping_after(count: int) -> Callable[[Progress], bool]:
    seen: list[Progress] = []

    def watch(progress: Progress) -> bool:
        seen.append(progress)
        return len(seen) <= count

    return watch


def told(result: FleetResult) -> Any:
    """Everything but how often answers were remembered."""
    states = [(one.pods, one.state.held, one.placed, one.refused) for one in result.nodes]
    return result.pods, result.samples, result.refusals, states, result.placements, result.ended_s


@pytest.mark.parametrize("retry", list(Retry))
@pytest.mark.parametrize("count", [0, 1])
def test_a_run_that_is_broken_off_goes_on(tmp_path: Path, retry: Retry, count: int) -> None:
    checkpoint, options = Checkpoint(tmp_path / "fleet.checkpoint", every=100), Options(retry=retry)
    whole = run(*fleet(), options)
    broken = run(*fleet(), options, watch=stopping_after(count), checkpoint=checkpoint)
    assert not broken.complete
    assert checkpoint.path.exists()
    after = run(*fleet(), options, checkpoint=checkpoint)
    assert told(after) == told(whole)
    assert after.complete
    assert not checkpoint.path.exists()


def test_it_is_written_all_the_while(tmp_path: Path) -> None:
    checkpoint = Checkpoint(tmp_path / "fleet.checkpoint", every=10)
    sizes = []

    def watch(_: Progress) -> bool:
        sizes.append(checkpoint.path.stat().st_size if checkpoint.path.exists() else 0)
        return True

    run(*fleet(), watch=watch, checkpoint=checkpoint)
    assert sizes[0] > 0


@pytest.mark.parametrize(
    ("content", "rule"),
    [
        (b"", "is no checkpoint of a fleet"),
        (pickle.dumps({"version": 0}), "is no checkpoint that this version reads"),
        (pickle.dumps(print), "builtins.print has no place in it"),
        (pickle.dumps({"version": 2, "run": "another"}), "with other nodes or options"),
    ],
)
def test_what_is_no_checkpoint_of_this_run_is_told(tmp_path: Path, content: bytes, rule: str) -> None:
    path = tmp_path / "fleet.checkpoint"
    path.write_bytes(content)
    with pytest.raises(InputError, match=rule):
        run(*fleet(), checkpoint=Checkpoint(path))


def test_a_run_is_another_one_with_other_kubelets() -> None:
    setup = Setup(start=lambda _: pytest.fail("nobody starts"))
    mine, others = some_nodes(2, STRICT), some_nodes(2)
    assert identity(mine, setup) == identity(some_nodes(2, STRICT), setup)
    assert identity(mine, setup) != identity(others, setup)


def test_values_that_act_are_not_read() -> None:
    class Acting:
        def __reduce__(self) -> tuple[Any, tuple[str]]:
            return Path.unlink, ("/tmp/anything",)  # noqa: S108 - never touched

    play = Play([], Setup(start=lambda _: pytest.fail("nobody starts")))
    with pytest.raises(CheckpointError, match="has no place in it"):
        restore(play, pickle.dumps(Acting()), "run")
