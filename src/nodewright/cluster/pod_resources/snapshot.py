"""A snapshot of a PodResources socket, read in this process or in a short-lived one.

As a program: `python -m nodewright.cluster.pod_resources.snapshot SOCKET` prints the snapshot as JSON. Programs that read a socket
rarely save the memory of gRPC, which is half of theirs.
"""

import os
import sys
from pathlib import Path

import msgspec

from nodewright.documents.files.commands import CommandLimits, run_command_beside
from nodewright.documents.files.regular_files import MAX_FILE_BYTES
from nodewright.documents.output.terminal import print_message, print_text
from nodewright.documents.profiles.capture.from_pod_resources import PodResourcesSnapshot
from nodewright.model.errors import HostError
from nodewright.model.values.idset import CPUSet
from nodewright.version import install_command

_LIMIT_S = 30.0


def read_snapshot(socket: Path) -> PodResourcesSnapshot:
    """The response of the socket.

    Errors: HostError if nothing answers; ImportError if the gRPC client is not installed.
    """
    from nodewright.cluster.pod_resources.lister import PodResourcesClient  # noqa: PLC0415 - an extra

    client = PodResourcesClient(socket)
    return PodResourcesSnapshot(pods=client.pods(), allocatable=client.allocatable())


async def read_snapshot_apart(socket: Path) -> PodResourcesSnapshot:
    """The response of the socket, read by another process.

    Errors: HostError.
    """
    operation = "ask PodResources at"
    command = (sys.executable, "-m", "nodewright.cluster.pod_resources.snapshot", os.fspath(socket))
    try:
        result = await run_command_beside(
            command, CommandLimits(_LIMIT_S, MAX_FILE_BYTES), (operation, str(socket))
        )
    except OSError as error:
        raise HostError(operation, str(socket), error.strerror or str(error)) from None
    if result.exit_code != 0:
        lines = result.errors.decode("utf-8", "replace").strip().splitlines() or ["no answer"]
        raise HostError(operation, str(socket), lines[-1])
    return decode_snapshot(result.output)


def encode_snapshot(snapshot: PodResourcesSnapshot) -> bytes:
    """The snapshot as JSON."""
    return msgspec.json.encode(snapshot, enc_hook=str)


def decode_snapshot(content: bytes) -> PodResourcesSnapshot:
    """The snapshot that `encode_snapshot` has encoded."""
    return msgspec.json.decode(content, type=PodResourcesSnapshot, dec_hook=_cpu_set)


def _cpu_set(kind: type, text: str) -> CPUSet:
    assert kind is CPUSet
    return CPUSet.parse(text)


def main(socket: Path) -> int:
    """Prints the snapshot; the exit code."""
    try:
        content = encode_snapshot(read_snapshot(socket))
    except HostError as error:
        print_message(error.error)
        return 1
    except ImportError as error:
        print_message(f"{error}: {install_command('agent')}")
        return 1
    print_text(content.decode())
    return 0


if __name__ == "__main__":
    sys.exit(main(Path(sys.argv[1])))
