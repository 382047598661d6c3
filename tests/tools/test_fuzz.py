import gc
import os
from collections.abc import Iterator
from itertools import islice
from zlib import crc32

import click
import pytest
from tests.support.all_commands import all_commands
from tests.unit.test_threat_model import SERVERS

from nodewright.documents.output.terminal import USAGE
from tools.fuzz import NUMBERS, inputs, numbers, targets, tried
from tools.fuzz_commands import command_targets
from tools.fuzz_mutations import EXTREME_TIMES, EXTREMES, with_extremes
from tools.fuzz_requests import request_targets, requested_routes
from tools.fuzz_targets import cluster_targets, file_targets

SEED = int(os.environ.get("FAULT_SEED") or 20260101)
"""The seed that `make test` prints, and `make test SEED=` repeats."""
WHOLE_COMMANDS = {*file_targets(), *cluster_targets(), *command_targets(), *request_targets()}
"""And whole clusters: they take longer than a parser."""
COMMANDS_SEED = 453_043_288
"""Of whole commands, which `make fuzz` tries with other seeds for as long as it is told to."""
COMMAND_LINES = {*command_targets()}
COUNT = int(os.environ.get("FUZZ_INPUTS") or 60)
COUNT_OF_COMMANDS = 2
EXTREMES_STEP = int(os.environ.get("EXTREMES_STEP") or 1999)
"""Of the extreme numbers of a target, one in so many is tried, others with each seed; `tools fuzz --numbers` tries all."""


def seed_of(target: str) -> int:
    return COMMANDS_SEED if target in WHOLE_COMMANDS else SEED


@pytest.mark.slow
@pytest.mark.parametrize("target", targets())
def test_readers_take_or_refuse_what_is_damaged(target: str) -> None:
    # Whole commands take longer: `make fuzz` tries them for as long as it is told to.
    contents = islice(
        inputs(target, seed_of(target)), COUNT_OF_COMMANDS if target in WHOLE_COMMANDS else COUNT
    )
    findings = [tried(target, number, content) for number, content in enumerate(contents)]
    assert not any(findings), (seed_of(target), [finding for finding in findings if finding])


@pytest.mark.slow
@pytest.mark.parametrize("target", targets())
def test_no_number_costs_more_than_it_is_long(target: str) -> None:
    """Zero, negative, of more than 32 and 64 bits, of 400 digits, none at all: in each place that has a number."""
    first = crc32(f"{target} {SEED}".encode()) % EXTREMES_STEP
    contents = numbers(target, first, EXTREMES_STEP)
    gc.freeze()  # A collection of what thousands of tests have left takes seconds.
    findings = [tried(target, number, content, NUMBERS) for number, content in enumerate(contents)]
    assert not any(findings), (SEED, [finding for finding in findings if finding])


def test_extremes_take_the_place_of_every_kind_of_number() -> None:
    document = b"kind: Pod\nspec: {replicas: 2, limits: [{memory: 2Gi}, {memory: 3Gi}], wait: 1m, at: '2026-01-01T00:00:00Z'}\n"
    texts = [content.decode() for content in with_extremes((document, b"name,cpu\na,2\nb,3\n", b"2x8"))]
    assert len(texts) == 6 * len(EXTREMES) + len(EXTREME_TIMES)
    for part in (
        '"replicas": -1',
        '"replicas": .nan',
        '"-1Gi"',
        '"-1m"',
        '"0001-01-01',
        "a,-1",
        "-1x8",
        "2x-1",
    ):
        assert sum(part in text for text in texts) == 1, part


@pytest.mark.slow
@pytest.mark.parametrize("target", targets())
def test_readers_take_what_is_whole(target: str) -> None:
    """Of the samples, which all command lines share, each line reads one, another with each seed."""
    samples = list(dict.fromkeys(targets()[target].samples))
    if target in COMMAND_LINES:
        samples = [samples[crc32(f"{target} {SEED}".encode()) % len(samples)]]
    for sample in samples:
        code = targets()[target].read(sample)
        if target in COMMAND_LINES and "WORD" not in target and code == USAGE:
            # Which of the alternatives of a line is taken depends on the content.
            others = (targets()[target].read(sample + b"\n" * count) for count in range(1, 9))
            assert any(code != USAGE for code in others), "no input is read"


def test_every_file_that_a_command_reads_is_damaged() -> None:
    lines = [target.line.replace("|", " ").replace("=", " ").split() for target in targets().values()]
    missing = {
        f"{name} {option.opts[-1]}"
        for name, command in all_commands()
        for option in _file_options(command)
        if not any({*name.split()} <= {*words} and {*option.opts} & {*words} for words in lines)
    }
    assert not {each for each in missing if not each.endswith(NOT_DAMAGED)}


NOT_DAMAGED = (
    *("--html", "--parquet", "--journal", "--write-baseline", "--nodes-file", "--pods-file", "--answers"),
    *("--policies", "-certificate", "-certificate-authority", "-key", "-cert-file", "-key-file", "-ca-file"),
    *("--cert-dir", "--root-dir", "--device-plugin-dir", "-token-file", "--token-auth-file", "kubeconfig"),
    *("--config-dir", "--kustomize", "--machine", "--sysfs", "--static-pods"),
    *("--lscpu", "--machine-info", "node export --kubelet-config", "node export --configz"),
    *("preempt --pods", "cgroups --pods"),
)
"""What is written, what is Python, what other targets damage by another name, what only root has, and directories;
the last ones are read by the function that reads those of other commands."""


def _file_options(command: click.Command) -> Iterator[click.Parameter]:
    """Every option of a command whose value is a file or a directory."""
    for parameter in command.params:
        shown = parameter.make_metavar(click.Context(command)) if isinstance(parameter, click.Option) else ""
        if any(word in shown for word in ("FILE", "DIR")):
            yield parameter


def test_requests_are_made_to_each_route_of_each_server() -> None:
    declared = {route for routes in SERVERS.values() for route in routes() if not route.startswith("RPC ")}
    assert declared - {"GET /dashboard/session"} == requested_routes()
