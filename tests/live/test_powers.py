"""What plain processes may do, and how they are asked to end: as their security contexts and lifecycles say, for real."""

import asyncio
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import pytest
from msgspec.structs import replace
from tests.live.test_composed import Composed, a_pod
from tests.support.live_agent import process_bench

from nodewright.agent.pods.container_lifecycle import ContainerConfigError
from nodewright.agent.rules.container_security import CAPABILITIES

pytestmark = pytest.mark.live

OURS = int(
    next(
        line.split()[1]
        for line in Path("/proc/self/status").read_text("ascii").splitlines()
        if line.startswith("CapBnd")
    ),
    16,
)
ASKS = ["sh", "-c", "cat /proc/self/status"]


def status(context: dict[str, Any]) -> dict[str, str]:
    """What the kernel says of a process with this security context."""

    async def ask() -> dict[str, str]:
        async with process_bench() as bench:
            composed = Composed(bench, a_pod(ASKS, securityContext=context))
            await composed.start()
            assert (await composed.ended()).exit_code == 0
            return dict(line.split(":\t", 1) for line in composed.said() if ":\t" in line)

    return asyncio.run(asyncio.wait_for(ask(), 60))


def mask(*names: str) -> int:
    return sum(1 << CAPABILITIES.index(name) for name in names) & OURS


def effective(found: Mapping[str, str]) -> tuple[int, int]:
    return int(found["CapEff"], 16), int(found["CapBnd"], 16)


def test_root_without_capabilities_has_none() -> None:
    assert effective(status({"capabilities": {"drop": ["ALL"]}})) == (0, 0)


def test_root_keeps_the_capabilities_that_it_names() -> None:
    numbers = effective(status({"capabilities": {"drop": ["ALL"], "add": ["NET_BIND_SERVICE", "CAP_KILL"]}}))
    assert numbers == (mask("NET_BIND_SERVICE", "KILL"),) * 2


def test_root_drops_the_capabilities_that_it_names() -> None:
    numbers = effective(status({"capabilities": {"drop": ["NET_RAW"]}}))
    assert numbers == (OURS & ~(1 << CAPABILITIES.index("NET_RAW")),) * 2


def test_who_says_nothing_has_what_the_agent_has() -> None:
    result = status({})
    assert int(result["CapBnd"], 16) == OURS
    assert result["NoNewPrivs"] == "0"


def test_another_user_gains_nothing() -> None:
    result = status(
        {"runAsUser": 65534, "allowPrivilegeEscalation": False, "capabilities": {"drop": ["ALL"]}}
    )
    assert (result["NoNewPrivs"], result["Uid"].split()[0]) == ("1", "65534")
    assert effective(result) == (0, 0)


def test_who_must_not_be_root_and_would_be_is_refused() -> None:
    with pytest.raises(ContainerConfigError, match="container has runAsNonRoot and image will run as root"):
        status({"runAsNonRoot": True})


def test_what_a_process_cannot_be_held_to_is_refused() -> None:
    with pytest.raises(
        ContainerConfigError, match="readOnlyRootFilesystem: the process uses the host's file system"
    ):
        status({"readOnlyRootFilesystem": True})


def asked_with(*, has_gate: bool) -> list[str]:
    """What a container hears that wants to end by SIGUSR1."""

    async def ask() -> list[str]:
        async with process_bench() as bench:
            script = "trap 'echo USR1; exit 0' USR1; trap 'echo TERM; exit 0' TERM; echo ready; while :; do sleep 0.05; done"
            composed = Composed(bench, a_pod(["sh", "-c", script], lifecycle={"stopSignal": "SIGUSR1"}))
            composed.composer.node_context = replace(
                composed.composer.node_context, has_stop_signals=has_gate
            )
            id_ = await composed.start()
            while not composed.log.exists() or "ready" not in composed.said():
                await asyncio.sleep(0.01)
            await bench.runtime.stop_container(id_, 20)
            return composed.said()

    return asyncio.run(asyncio.wait_for(ask(), 60))


def test_a_container_ends_by_its_own_signal_where_the_gate_is_on() -> None:
    assert asked_with(has_gate=True) == ["ready", "USR1"]
    assert asked_with(has_gate=False) == ["ready", "TERM"]
