"""The process of a worker: `python -m nodewright.scheduling.extender.shard_process FD`, started by the extender only."""

import asyncio
import os
import signal
import socket
import sys
from contextlib import AsyncExitStack
from pathlib import Path
from typing import Any

import msgspec

from nodewright.cluster.tasks.timing import HostClock
from nodewright.documents.files.process_tuning import ShortCollections
from nodewright.documents.output.terminal import print_log_line
from nodewright.model.errors import HostError, InputError
from nodewright.scheduling.extender.extender_options import ExtenderOptions
from nodewright.scheduling.extender.run_extender import open_process, running
from nodewright.scheduling.extender.shard_answers import ShardAnswers
from nodewright.scheduling.extender.worker_link import answer_requests, read_frame
from nodewright.scheduling.verdicts.node_owners import NodeOwners


async def run_worker(connection: socket.socket) -> None:
    """Answers for the worker's nodes until the connection ends.

    Errors: InputError, HostError.
    """
    reader, writer = await asyncio.open_unix_connection(sock=connection)
    message = await read_frame(reader, tuple[int, ExtenderOptions], dec_hook=_path)
    if message is None:
        return
    number, options = message
    ShortCollections(generation=1).install()
    owners = NodeOwners(options.workers)
    clock = HostClock()
    async with AsyncExitStack() as stack:
        process = await open_process(
            stack,
            msgspec.structs.replace(options, leader_elect=False),
            clock,
            lambda name: owners.owner(name) == number,
        )
        stack.callback(writer.close)
        async with running(process.tasks(), clock):
            await answer_requests(reader, writer, ShardAnswers(process.service).answer)


def _path(kind: type, value: Any) -> Any:
    assert kind is Path
    return Path(value)


def main() -> int:
    """Runs the worker on the connection of that descriptor."""
    # A terminal sends SIGINT to all processes; the first one ends its workers by closing their connections.
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    try:
        asyncio.run(run_worker(socket.socket(fileno=int(sys.argv[1]))))
    except (InputError, HostError) as error:
        print_log_line(str(error))
        return os.EX_CONFIG
    return os.EX_OK


if __name__ == "__main__":
    sys.exit(main())
