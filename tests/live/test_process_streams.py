"""Exec and attach for plain processes: real processes, pipes, terminals and cgroups."""

import asyncio
import os
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path

import pytest
from tests.support.live_agent import ProcessBench, process_bench
from tests.support.runtime_port import RuntimeTestContainer

from nodewright.agent.host.ports import (
    STDERR,
    STDOUT,
    AttachStreamRequest,
    ExecStreamRequest,
    ProcessSession,
    StandardStreams,
)
from nodewright.agent.runtimes.processes.exec_session import PlainProcessStreams
from nodewright.agent.runtimes.processes.process_runtime import ProcessRuntime
from nodewright.model.errors import HostError

pytestmark = [
    pytest.mark.live,
    pytest.mark.skipif(os.geteuid() != 0, reason="an agent makes cgroups: that takes root"),
]
ALL = StandardStreams(stdin=True, stdout=True, stderr=True)
TERMINAL = StandardStreams(stdin=True, stdout=True, tty=True)


class Output:
    """The output of a session, by stream."""

    def __init__(self) -> None:
        self.text = {STDOUT: b"", STDERR: b""}
        self._changed = asyncio.Event()

    async def take(self, number: int, data: bytes) -> None:
        """Takes a part."""
        self.text[number] += data
        self._changed.set()

    async def until(self, text: bytes) -> None:
        """Waits until the standard output contains the text."""
        async with asyncio.timeout(20):
            while text not in self.text[STDOUT]:
                self._changed.clear()
                await self._changed.wait()


@asynccontextmanager
async def session(
    bench: ProcessBench, streams: StandardStreams, *command: str
) -> AsyncIterator[tuple[ProcessSession, Output, asyncio.Task[int]]]:
    """A command in a new container that sleeps."""
    await bench.start_container(RuntimeTestContainer.RUNS)
    status = await bench.newest(RuntimeTestContainer.RUNS)
    assert isinstance(bench.runtime, ProcessRuntime)
    request = ExecStreamRequest(container_id=status.id, command=command, streams=streams)
    output = Output()
    async with PlainProcessStreams(bench.runtime).open(request) as opened:
        yield opened, output, asyncio.ensure_future(opened.copy_output(output.take))


def processes_of(bench: ProcessBench) -> tuple[int, ...]:
    return bench.cgroups.processes(bench.cgroup_parent)


async def _streams_and_code() -> None:
    async with process_bench() as bench:
        script = "read line; echo got $line; echo bad >&2; cat; exit 5"
        async with session(bench, ALL, "sh", "-c", script) as (opened, output, ending):
            await opened.write(b"one\ntwo")
            await output.until(b"two")
            assert not ending.done()
            opened.close_stdin()
            assert await asyncio.wait_for(ending, 20) == 5
        assert output.text == {STDOUT: b"got one\ntwo", STDERR: b"bad\n"}
        assert [file for file in Path("/proc/self/fd").iterdir() if "pts" in os.path.realpath(file)] == []


def test_streams_are_separate_and_the_exit_code_arrives() -> None:
    asyncio.run(_streams_and_code())


async def _terminal() -> None:
    async with process_bench() as bench, session(bench, TERMINAL, "sh") as (opened, output, ending):
        opened.resize(123, 45)
        await opened.write(b"stty size; tty; echo $TERM\n")
        await output.until(b"45 123")
        await output.until(b"/dev/pts/")
        await output.until(b"xterm")
        # A terminal sends signals.
        await opened.write(b"echo now-$((1 + 1)); sleep 1000\n")
        await output.until(b"now-2")
        await asyncio.sleep(0.3)
        await opened.write(b"\x03")
        await opened.write(b"echo after-$?\n")
        await output.until(b"after-130")
        await opened.write(b"exit 4\n")
        assert await asyncio.wait_for(ending, 20) == 4


def test_a_terminal_has_a_size_and_signals() -> None:
    asyncio.run(_terminal())


async def _client_leaves() -> None:
    async with process_bench() as bench:
        async with session(bench, ALL, "sh", "-c", "sleep 1000 & sleep 1000") as (_, _, ending):
            while len(processes_of(bench)) < 4:
                await asyncio.sleep(0.02)
            before = processes_of(bench)
            ending.cancel()
        async with asyncio.timeout(20):
            while len(processes_of(bench)) > len(before) - 3:
                await asyncio.sleep(0.02)


def test_a_command_and_its_children_end_with_the_client() -> None:
    asyncio.run(_client_leaves())


async def _background() -> None:
    async with process_bench() as bench:
        command = ("sh", "-c", "sleep 1000 & echo started")
        async with session(bench, ALL, *command) as (_, output, ending):
            assert await asyncio.wait_for(ending, 20) == 0
        assert output.text[STDOUT] == b"started\n"


def test_a_background_process_does_not_hold_the_end_up() -> None:
    asyncio.run(_background())


async def _large() -> None:
    count = 8 << 20
    async with process_bench() as bench:
        command = ("sh", "-c", f"head -c {count} | wc -c; head -c {count} /dev/zero")
        async with session(bench, ALL, *command) as (opened, output, ending):
            for _ in range(count >> 16):
                await opened.write(bytes(1 << 16))
            assert await asyncio.wait_for(ending, 60) == 0
        assert output.text[STDOUT] == f"{count}\n".encode() + bytes(count)


def test_large_streams_arrive_whole() -> None:
    asyncio.run(_large())


async def _missing() -> None:
    async with process_bench() as bench:
        async with session(bench, ALL, "no-such-program") as (_, output, ending):
            assert await asyncio.wait_for(ending, 20) == 126
        assert b"no-such-program: executable file not found" in output.text[STDERR]
        assert isinstance(bench.runtime, ProcessRuntime)
        request = ExecStreamRequest(container_id="none_x_0", command=("id",), streams=ALL)
        with pytest.raises(HostError, match="it does not run"):
            async with PlainProcessStreams(bench.runtime).open(request):
                pass


def test_what_cannot_run_is_an_error() -> None:
    asyncio.run(_missing())


async def _attach() -> None:
    async with process_bench() as bench:
        await bench.start_container(RuntimeTestContainer.RUNS)
        status = await bench.newest(RuntimeTestContainer.RUNS)
        assert isinstance(bench.runtime, ProcessRuntime)
        request = AttachStreamRequest(container_id=status.id, streams=StandardStreams(stdout=True))
        output = Output()
        async with PlainProcessStreams(bench.runtime).open(request) as opened:
            ending = asyncio.ensure_future(opened.copy_output(output.take))
            log = Path(status.log_path)
            await asyncio.sleep(0.2)
            lines = b"2026-01-01T00:00:00Z stdout F seen\n2026-01-01T00:00:00Z stderr F unseen\n"
            log.write_bytes(log.read_bytes() + lines)
            await output.until(b"seen\n")
            await bench.runtime.stop_container(status.id, 0)
            assert await asyncio.wait_for(ending, 20) == 0
        assert output.text == {STDOUT: b"seen\n", STDERR: b""}


def test_attach_shows_the_output_until_the_container_ends() -> None:
    asyncio.run(_attach())
