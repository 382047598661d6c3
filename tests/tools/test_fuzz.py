import os
from itertools import islice
from zlib import crc32

import pytest
from tests.unit.test_threat_model import SERVERS

from tools.fuzz import inputs, targets, tried
from tools.fuzz_commands import command_targets
from tools.fuzz_requests import request_targets, requested_routes
from tools.fuzz_targets import cluster_targets, file_targets

SEED = int(os.environ.get("FAULT_SEED") or 20260101)
"""The seed that `make test` prints, and `make test SEED=` repeats."""
WHOLE_COMMANDS = {*file_targets(), *cluster_targets(), *command_targets(), *request_targets()}
"""And whole clusters: they take longer than a parser."""
COMMANDS_SEED = 453_043_288
"""Of whole commands, which `make fuzz` tries with other seeds for as long as it is told to."""
COMMAND_LINES = {*command_targets()}
COUNT = int(os.environ.get("FUZZ_INPUTS") or 150)


def seed_of(target: str) -> int:
    return COMMANDS_SEED if target in WHOLE_COMMANDS else SEED


@pytest.mark.slow
@pytest.mark.parametrize("target", targets())
def test_readers_take_or_refuse_what_is_damaged(target: str) -> None:
    # Whole commands take longer: `make fuzz` tries them for as long as it is told to.
    contents = islice(inputs(target, seed_of(target)), 8 if target in WHOLE_COMMANDS else COUNT)
    findings = [tried(target, number, content) for number, content in enumerate(contents)]
    assert not any(findings), (seed_of(target), [finding for finding in findings if finding])


@pytest.mark.slow
@pytest.mark.parametrize("target", targets())
def test_readers_take_what_is_whole(target: str) -> None:
    """Of the samples, which all command lines share, each line reads one, another with each seed."""
    samples = list(dict.fromkeys(targets()[target].samples))
    if target in COMMAND_LINES:
        samples = [samples[crc32(f"{target} {SEED}".encode()) % len(samples)]]
    for sample in samples:
        targets()[target].read(sample)


def test_requests_are_made_to_each_route_of_each_server() -> None:
    declared = {route for routes in SERVERS.values() for route in routes() if not route.startswith("RPC ")}
    assert declared - {"GET /dashboard/session"} == requested_routes()
