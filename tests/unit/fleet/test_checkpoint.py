"""A run that is broken off goes on as if it never had been."""

import json
import pickle
from collections.abc import Callable
from hashlib import sha256
from pathlib import Path
from typing import Any

import pytest
from msgspec.structs import replace

from nodewright.fleet import Options, Retry, RunCheckpoint, run
from nodewright.fleet.checkpoint import run_identity
from nodewright.fleet.simulation.fleet_simulation import Progress, SimulationSetup
from nodewright.fleet.simulation.outcomes import FleetResult
from nodewright.fleet.workload import FleetNode, FleetPod, UsageStep
from nodewright.model.errors import InputError
from nodewright.testing.fleets import a_template, some_nodes, some_pods
from nodewright.testing.nodes import a_profile

STRICT = a_profile(
    cpuManagerPolicy="static", reservedSystemCPUs="0", topologyManagerPolicy="single-numa-node"
)


def fleet() -> tuple[list[FleetNode], list[FleetPod]]:
    """More than fits, with pods that are refused, pods that make way, and others that wait for a zone."""
    kinds = [
        some_pods(150, a_template("cpu=2 memory=1Gi"), "small", runs_s=7),
        some_pods(20, a_template("cpu=5 memory=1Gi"), "wide", runs_s=3, has_controller=True),
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


def comparable(result: FleetResult) -> Any:
    """Everything but how often answers were remembered."""
    states = [(node.pods, node.state.held, node.placed_pods, node.refused_pods) for node in result.nodes]
    return result.pods, result.samples, result.refusals, states, result.placements, result.ended_s


@pytest.mark.parametrize("retry", list(Retry))
@pytest.mark.parametrize("count", [0, 1])
def test_an_interrupted_run_continues(tmp_path: Path, retry: Retry, count: int) -> None:
    checkpoint, options = (
        RunCheckpoint(tmp_path / "fleet.checkpoint", every_decisions=100),
        Options(retry=retry),
    )
    whole = run(*fleet(), options)
    broken = run(*fleet(), options, watch=stopping_after(count), checkpoint=checkpoint)
    assert not broken.complete
    assert checkpoint.path.exists()
    after = run(*fleet(), options, checkpoint=checkpoint)
    assert comparable(after) == comparable(whole)
    assert after.complete
    assert not checkpoint.path.exists()


def test_a_checkpoint_is_written_regularly(tmp_path: Path) -> None:
    checkpoint = RunCheckpoint(tmp_path / "fleet.checkpoint", every_decisions=10)
    sizes = []

    def watch(_: Progress) -> bool:
        sizes.append(checkpoint.path.stat().st_size if checkpoint.path.exists() else 0)
        return True

    run(*fleet(), watch=watch, checkpoint=checkpoint)
    assert sizes[0] > 0


def interrupted(path: Path) -> bytes:
    """The checkpoint of the fleet, in its middle."""
    checkpoint = RunCheckpoint(path / "fleet.checkpoint")
    run(*fleet(), watch=stopping_after(1), checkpoint=checkpoint)
    return checkpoint.path.read_bytes()


def with_rows(data: bytes, change: Callable[[Any], object]) -> bytes:
    """The checkpoint with changed rows and their checksum."""
    line, _, body = data.partition(b"\n")
    header, rows = json.loads(line), json.loads(body)
    change(rows)
    body = json.dumps(rows).encode()
    return json.dumps({**header, "sha256": sha256(body).hexdigest()}).encode() + b"\n" + body


def continued(path: Path, data: bytes) -> None:
    (path / "fleet.checkpoint").write_bytes(data)
    run(*fleet(), checkpoint=RunCheckpoint(path / "fleet.checkpoint"))


@pytest.mark.parametrize(
    ("content", "rule"),
    [
        (b"", "is not a checkpoint of a fleet"),
        (pickle.dumps({"version": 2}), "is not a checkpoint of a fleet"),
        (b"[" * 100_000, "is not a checkpoint of a fleet"),
        (b'{"kind": "List", "version": 1}', "is not a checkpoint of a fleet"),
    ],
)
def test_files_that_are_no_checkpoints_are_errors(tmp_path: Path, content: bytes, rule: str) -> None:
    with pytest.raises(InputError, match=rule):
        continued(tmp_path, content)


@pytest.mark.parametrize(
    ("field", "value", "rule"),
    [
        ("version", 3, "is not a checkpoint that this version can read"),
        ("classes", "", "is not a checkpoint that this version can read"),
        ("kind", "another", "is not a checkpoint of a fleet"),
        ("run", "another", "is the checkpoint of a run with other nodes or options"),
        ("sha256", "", "is damaged"),
    ],
)
def test_checkpoints_of_others_are_errors(tmp_path: Path, field: str, value: object, rule: str) -> None:
    line, _, body = interrupted(tmp_path).partition(b"\n")
    with pytest.raises(InputError, match=rule):
        continued(tmp_path, json.dumps({**json.loads(line), field: value}).encode() + b"\n" + body)


def test_a_checkpoint_with_one_changed_byte_is_an_error(tmp_path: Path) -> None:
    data = interrupted(tmp_path)
    for at in range(0, len(data), 997):
        with pytest.raises(InputError, match="checkpoint"):
            continued(tmp_path, data[:at] + bytes([data[at] ^ 1]) + data[at + 1 :])


def test_a_checkpoint_of_other_pods_is_an_error(tmp_path: Path) -> None:
    checkpoint = RunCheckpoint(tmp_path / "fleet.checkpoint")
    nodes, pods = fleet()
    run(nodes, pods, watch=stopping_after(1), checkpoint=checkpoint)
    renamed = [replace(pods[0], name="another"), *pods[1:]]
    for others in (renamed, pods[:1]):
        with pytest.raises(InputError, match="run with other pods"):
            run(nodes, others, checkpoint=checkpoint)


@pytest.mark.parametrize("link", ["/dev/zero", "/"])
def test_a_checkpoint_that_is_no_regular_file_is_an_error(tmp_path: Path, link: str) -> None:
    path = tmp_path / "fleet.checkpoint"
    path.symlink_to(link)
    with pytest.raises(InputError, match="cannot be read"):
        run(*fleet(), checkpoint=RunCheckpoint(path))


@pytest.mark.slow
def test_rows_with_values_of_other_types_are_taken_or_refused(tmp_path: Path) -> None:
    """Each field of one row of each class, with a value that few types can have."""
    data, refused = interrupted(tmp_path), 0
    rows = json.loads(data.partition(b"\n")[2])
    number_of_class = {row[0]: at for at, row in enumerate(rows)}
    fields = [(at, field) for at in number_of_class.values() for field in range(1, len(rows[at]))]
    for number, field in fields:

        def change(rows: Any, number: int = number, field: int = field) -> None:
            rows[number][field] = {"row": len(rows) * 2}

        try:
            continued(tmp_path, with_rows(data, change))
        except InputError:
            refused += 1
    assert refused > 50


@pytest.mark.parametrize(
    "change",
    [
        lambda rows: rows.append(["Popen", "id"]),
        lambda rows: rows.append(["__class__"]),
        lambda rows: rows[-1].append(1),
        lambda rows: rows.pop(),
        lambda rows: rows.clear(),
        lambda rows: rows[-1].__setitem__(1, 10**9),
        lambda rows: rows[-1].__setitem__(3, {}),
    ],
)
def test_rows_that_are_not_the_state_of_the_fleet_are_errors(
    tmp_path: Path, change: Callable[[Any], object]
) -> None:
    with pytest.raises(InputError, match=r"is not the state of a fleet|run with other pods"):
        continued(tmp_path, with_rows(interrupted(tmp_path), change))


def test_the_identity_of_a_run_depends_on_its_kubelets() -> None:
    setup = SimulationSetup(start_node=lambda _: pytest.fail("nobody starts"))
    mine, others = some_nodes(2, STRICT), some_nodes(2)
    assert run_identity(mine, setup) == run_identity(some_nodes(2, STRICT), setup)
    assert run_identity(mine, setup) != run_identity(others, setup)


def test_checkpoints_cannot_run_code(tmp_path: Path) -> None:
    """A pickle that calls a function by the classes of our own objects, which a filter of names let pass."""
    mark = tmp_path / "mark"
    code = (
        b"\x80\x04\x8c\x08builtins\x94\x8c\x04exec\x94\x93\x94\x8c"
        + bytes([len(f"open({str(mark)!r}, 'w')")])
        + f"open({str(mark)!r}, 'w')".encode()
        + b"\x94\x85\x94R."
    )
    with pytest.raises(InputError, match="is not a checkpoint of a fleet"):
        continued(tmp_path, code)
    assert not mark.exists()


def test_a_link_beside_the_checkpoint_is_not_followed(tmp_path: Path) -> None:
    victim = tmp_path / "victim"
    victim.write_text("precious")
    for name in ("fleet.checkpoint.new", ".fleet.checkpoint.tmp"):
        (tmp_path / name).symlink_to(victim)
    interrupted(tmp_path)
    assert victim.read_text() == "precious"
    assert not (tmp_path / "fleet.checkpoint").is_symlink()


@pytest.mark.slow
def test_a_run_with_usage_devices_and_memory_continues(tmp_path: Path) -> None:
    profile = a_profile(
        cpuManagerPolicy="static",
        reservedSystemCPUs="0",
        evictionHard={"memory.available": "1Gi"},
        topologyManagerPolicy="best-effort",
    )
    pods = [
        replace(pod, usage=(UsageStep(0, 1 << 30), UsageStep(5, 20 << 30)), has_controller=number % 2 == 0)
        for number, pod in enumerate(some_pods(40, a_template("cpu=1 memory=1Gi"), runs_s=60))
    ]
    pods = [replace(pod, arrives_s=float(number)) for number, pod in enumerate(pods)]
    nodes, checkpoint = some_nodes(3, profile), RunCheckpoint(tmp_path / "fleet.checkpoint")
    whole = run(nodes, pods)
    assert whole.evictions
    for stop_after in range(2):
        run(nodes, pods, watch=stopping_after(stop_after), checkpoint=checkpoint)
    assert comparable(run(nodes, pods, checkpoint=checkpoint)) == comparable(whole)
