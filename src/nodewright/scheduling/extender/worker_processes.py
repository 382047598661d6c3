"""The workers of an extender: one process each, started again when it ends."""

import asyncio
import socket
import sys
from collections.abc import Callable
from contextlib import suppress

from nodewright.model.errors import HostError
from nodewright.scheduling.extender.extender_options import ExtenderOptions
from nodewright.scheduling.extender.shard_messages import ShareAnswer, ShareRequest, framed
from nodewright.scheduling.extender.worker_link import WorkerLink, WorkerLostError

STOP_S = 5.0
MODULE = "nodewright.scheduling.extender.shard_process"


class ExtenderWorker:
    """One worker. It ends when its connection does, so that none is left behind."""

    def __init__(self, number: int, options: ExtenderOptions) -> None:
        self.number, self._options = number, options
        self.on_change: Callable[[], None] = lambda: None
        """Called when the worker has started or ended."""
        self._link: WorkerLink | None = None
        self.process_id = 0
        """Of the process that runs; 0: none does."""

    async def ask(self, request: ShareRequest) -> ShareAnswer:
        """The worker's answer.

        Errors: WorkerLostError.
        """
        if self._link is None:
            raise WorkerLostError(f"worker {self.number} does not run")
        return await self._link.ask(request)

    async def run(self) -> None:
        """Starts the process and waits for its end.

        Errors: HostError when it has ended.
        """
        ours, theirs = socket.socketpair()
        with theirs:
            process = await asyncio.create_subprocess_exec(
                *(sys.executable, "-m", MODULE, str(theirs.fileno())),
                pass_fds=(theirs.fileno(),),
                stdin=asyncio.subprocess.DEVNULL,
            )
        reader, writer = await asyncio.open_unix_connection(sock=ours)
        try:
            writer.write(framed((self.number, self._options)))
            self._link, self.process_id = WorkerLink(reader, writer), process.pid
            self.on_change()
            await self._link.run()
        finally:
            self._link, self.process_id = None, 0
            self.on_change()
            await _end(process)
        raise HostError("run", f"worker {self.number}", f"it ended with status {process.returncode}")


async def _end(process: asyncio.subprocess.Process) -> None:
    """Waits until the process has ended, which it does without its connection."""
    with suppress(TimeoutError):
        async with asyncio.timeout(STOP_S):
            await process.wait()
            return
    with suppress(ProcessLookupError):
        process.kill()
    await process.wait()
