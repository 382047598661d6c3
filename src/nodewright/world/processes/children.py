"""Processes that the agent starts, and those that it watches: by descriptors, so that no number is another's."""

import asyncio
import contextlib
import marshal
import os
import signal
import sys
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

from nodewright.world.ports import Executed
from nodewright.world.processes import shim

OUTPUT_LIMIT = 64 * 1024
"""How much of what a command says is kept."""

_HERE = str(Path(shim.__file__).parent)
_WORDS = "import sys; sys.path.append(sys.argv[1]); import shim; "
_CHUNK, _PIPE_CHUNKS = 65536, 16


def start_shim(spec: Mapping[str, Any], directory: Path, answer: int) -> None:
    """A shim starts; it answers on the descriptor, in one line, how that went.

    Errors: OSError.
    """
    _Reaped(_spawned(spec, ["shim.main(sys.argv[2])", str(directory)], (answer, answer)))


async def execute(spec: Mapping[str, Any], timeout_s: float) -> Executed:
    """What a command gave that entered a container's groups; what it left behind in the background goes on.

    Errors: OSError; TimeoutError: it goes on, and is to be killed.
    """
    out, err = _Output(), _Output()
    try:
        pid = _spawned(spec, ["shim.execute()"], (out.inside, err.inside))
        code = await asyncio.wait_for(asyncio.shield(_Reaped(pid).code), timeout_s)
        return Executed(code if code >= 0 else 128 - code, out.text(), err.text())
    finally:
        out.close()
        err.close()


def _spawned(spec: Mapping[str, Any], words: list[str], said: tuple[int, int]) -> int:
    """A process of our interpreter that runs the shim's module, with the spec as its standard input."""
    told = os.memfd_create("spec")
    try:
        os.write(told, marshal.dumps(dict(spec)))
        os.lseek(told, 0, os.SEEK_SET)
        act, *args = words
        return os.posix_spawn(
            sys.executable,
            [sys.executable, "-I", "-S", "-c", _WORDS + act, _HERE, *args],
            {},
            file_actions=[
                (os.POSIX_SPAWN_DUP2, told, 0),
                (os.POSIX_SPAWN_DUP2, said[0], 1),
                (os.POSIX_SPAWN_DUP2, said[1], 2),
            ],
            setsigmask=(),
            setsigdef=(signal.SIGINT, signal.SIGPIPE, signal.SIGTERM, signal.SIGHUP),
        )
    finally:
        os.close(told)


class _Output:
    """What a command says, up to a limit; it is never held up, and nobody waits for whoever keeps the pipe open."""

    def __init__(self) -> None:
        self._outside, self.inside = os.pipe()
        os.set_blocking(self._outside, False)
        self._said = bytearray()
        asyncio.get_running_loop().add_reader(self._outside, self._read)

    def text(self) -> bytes:
        """What was said until now."""
        # Whoever talks on in the background is not listened to for ever.
        for _ in range(_PIPE_CHUNKS):
            if not self._read():
                break
        return bytes(self._said)

    def close(self) -> None:
        """Listen no more."""
        asyncio.get_running_loop().remove_reader(self._outside)
        os.close(self._outside)
        os.close(self.inside)

    def _read(self) -> bool:
        """Whether there was something."""
        try:
            chunk = os.read(self._outside, _CHUNK)
        except BlockingIOError:
            return False
        self._said += chunk[: OUTPUT_LIMIT - len(self._said)]
        return bool(chunk)


class _Reaped:
    """A child of ours; ``code`` is there once it has ended, and it is reaped even when nobody waits any more."""

    def __init__(self, pid: int) -> None:
        self.code: asyncio.Future[int] = asyncio.get_running_loop().create_future()
        self._pid = pid
        self._descriptor = os.pidfd_open(pid)
        asyncio.get_running_loop().add_reader(self._descriptor, self._ended)

    def _ended(self) -> None:
        asyncio.get_running_loop().remove_reader(self._descriptor)
        os.close(self._descriptor)
        _, status = os.waitpid(self._pid, 0)
        if not self.code.done():
            self.code.set_result(os.waitstatus_to_exitcode(status))


class Watch:
    """Processes whose end is told, by a name that we give them."""

    def __init__(self, ended: Callable[[str], None]) -> None:
        self._told = ended
        self._held: dict[str, tuple[int, asyncio.Event]] = {}

    def __contains__(self, name: str) -> bool:
        """Whether it is watched, and so has not ended."""
        return name in self._held

    def add(self, name: str, pid: int, is_alive: Callable[[], bool]) -> bool:
        """Whether a process is watched from now on; ``is_alive`` is asked once we hold it: it is the one that is meant."""
        if name in self._held:
            return True
        try:
            descriptor = os.pidfd_open(pid)
        except OSError:
            return False
        if not is_alive():
            os.close(descriptor)
            return False
        self._held[name] = (descriptor, asyncio.Event())
        asyncio.get_running_loop().add_reader(descriptor, self._ended, name)
        return True

    async def gone(self, name: str, limit_s: float) -> bool:
        """Whether it ended in time; one that is not watched has."""
        held = self._held.get(name)
        if held is None:
            return True
        try:
            await asyncio.wait_for(held[1].wait(), limit_s)
        except TimeoutError:
            return False
        return True

    def kill(self, name: str) -> None:
        """SIGKILL."""
        held = self._held.get(name)
        if held is not None:
            with contextlib.suppress(ProcessLookupError):
                signal.pidfd_send_signal(held[0], signal.SIGKILL)

    def close(self) -> None:
        """Watch nobody any more."""
        for name in tuple(self._held):
            self._dropped(name)

    def _ended(self, name: str) -> None:
        self._dropped(name)
        self._told(name)

    def _dropped(self, name: str) -> None:
        descriptor, event = self._held.pop(name)
        asyncio.get_running_loop().remove_reader(descriptor)
        os.close(descriptor)
        event.set()
