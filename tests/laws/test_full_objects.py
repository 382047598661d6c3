"""Objects with every field set, as of a cluster that uses everything: every command takes them, in every format."""

import json
import os
from collections.abc import Callable, Iterator
from functools import partial
from pathlib import Path
from zlib import crc32

import click
import pytest
from tests.support.full_objects import KINDS, field_table, full_object

from nodewright.cli.app import COMMANDS, load_command, run
from nodewright.documents.output.terminal import ERROR, USAGE
from tools.fuzz import EXIT_CODES
from tools.fuzz_commands import command_targets

_PODS = (
    "Pod",
    "Deployment",
    "StatefulSet",
    "DaemonSet",
    "ReplicaSet",
    "Job",
    "CronJob",
    "ReplicationController",
)
_ALL_KINDS = (*KINDS, "Node", "PodDisruptionBudget")
_KINDS_ALONE = (*_PODS, "Node", "PodDisruptionBudget", "ResourceQuota", "LimitRange", "Service")
SEED = int(os.environ.get("FAULT_SEED") or 0)
SHARE = int(os.environ.get("RECORDED_SHARE") or 8)
"""Of the files with one kind, a line reads one in so many, others with each seed; `make soak` reads all."""
_LINES = (
    "requests --node vm-4 -f",
    "requests --explain --node vm-4 -f",
    "admit --node vm-4 -f",
    "admit --resize --node vm-4 -f",
    "explain -f",
    "explain --node vm-4 -f",
    "explain --node vm-4 --pod",
    "preempt --node vm-4 -f",
    "evict --node vm-4 --available memory.available=50Mi -f",
    "cgroups --node vm-4 -f",
    "cgroups --all --cgroup-version 1 --node vm-4 -f",
    "lint -f",
    "quota -f",
    "quota --from-status -f",
    "upgrade --node vm-4 --from 1.33 -f",
    "upgrade --from 1.33 --nodes",
    "rehearse --node vm-4 --pods",
    "audit --cgroups none --root-dir examples/worker-3/kubelet --node vm-4 --pods",
    "node capture --catalogue vm-4 --node-name worker-3 --pods",
    "node capture --node-object",
    "fleet run -f",
    "fleet run --nodes examples/fleet/nodes.csv --pods",
    "fleet capacity --nodes examples/fleet/nodes.csv --filename",
)
"""Commands that take objects from a file."""


def _command(words: list[str]) -> tuple[click.Command, int]:
    """The command of the line, and the number of its words."""
    command = load_command(words[0])
    return (command.commands[words[1]], 2) if isinstance(command, click.Group) else (command, 1)


def _with_formats() -> list[tuple[str, ...]]:
    """The lines with each of their output formats."""
    lines = list[tuple[str, ...]]()
    for words in map(str.split, _LINES):
        command, size = _command(words)
        for form in ("", *(f"-o{name}" for name in sorted(_output_choices(command)))):
            lines.append((*words[:size], *filter(None, [form]), *words[size:]))
    return lines


def _output_choices(command: click.Command) -> frozenset[str]:
    return frozenset(
        str(choice)
        for param in command.params
        if "-o" in param.opts and isinstance(param.type, click.Choice)
        for choice in param.type.choices
    )


@pytest.fixture(scope="module")
def files(tmp_path_factory: pytest.TempPathFactory) -> Callable[[str], Path]:
    directory = tmp_path_factory.mktemp("objects")
    for kind in _ALL_KINDS:
        (directory / f"{kind}.json").write_text(json.dumps(full_object(kind)))
    everything = {"apiVersion": "v1", "kind": "List", "items": [full_object(kind) for kind in _ALL_KINDS]}
    (directory / "all.json").write_text(json.dumps(everything))
    return lambda name: directory / f"{name}.json"


def _is_chosen(line: str, kind: str) -> bool:
    return kind == "all" or crc32(f"{line} {kind} {SEED}".encode()) % SHARE == 0


@pytest.mark.slow
@pytest.mark.parametrize("line", _with_formats(), ids=" ".join)
def test_every_command_takes_objects_with_every_field(
    line: tuple[str, ...], files: Callable[[str], Path], capsys: pytest.CaptureFixture[str]
) -> None:
    for kind in filter(partial(_is_chosen, " ".join(line)), (*_KINDS_ALONE, "all")):
        code = run([*line, str(files(kind))])
        printed, messages = capsys.readouterr()
        assert code in EXIT_CODES, (line, kind)
        assert "Traceback" not in messages
        if "-ojson" in line and code not in (ERROR, USAGE):
            json.loads(printed)


@pytest.mark.parametrize("kind", _PODS)
def test_full_pods_and_controllers_are_valid(
    kind: str, files: Callable[[str], Path], capsys: pytest.CaptureFixture[str]
) -> None:
    # Otherwise the commands above would end with the first invalid field.
    assert run(["requests", "--node", "vm-4", "-f", str(files(kind))]) == 0, capsys.readouterr().err


def test_a_full_pod_has_every_field_that_live_pods_have() -> None:
    pod = full_object("Pod")
    for part, type_name in (("spec", "PodSpec"), ("status", "PodStatus"), ("metadata", "ObjectMeta")):
        missing = {field.name for field in field_table()[type_name]} - set(pod[part])
        # Not together with others, or not on all nodes.
        assert missing <= {"hostUsers", "schedulingGroup", "hostnameOverride", "schedulingGates"}, part


def _commands() -> Iterator[tuple[str, click.Command]]:
    for name in COMMANDS:
        command = load_command(name)
        if isinstance(command, click.Group):
            yield from ((f"{name} {sub}", below) for sub, below in command.commands.items())
        else:
            yield name, command


def test_the_fuzzer_tries_every_command_with_every_format() -> None:
    tried: dict[str, set[str]] = {}
    for line in command_targets():
        words = [word.split("|") for word in line.split()]
        formats = {choice[2:] for choices in words for choice in choices if choice.startswith("-o")}
        for first in words[0]:
            for name in (first, *(f"{first} {second}" for second in words[1])):
                tried.setdefault(name, set()).update(formats)
    for name, command in _commands():
        assert name in tried, name
        missing = _output_choices(command) - tried[name]
        assert not missing or name == "version", (name, missing)
