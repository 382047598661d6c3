"""A device plugin that knows nothing of nodewright and writes its messages by hand: what an independent one sends.

`python rude_plugin.py DIRECTORY RESOURCE HOW`: HOW is one of `MANNERS`. It registers with the
kubelet's socket in the directory, prints what it is told, and behaves as HOW says.
"""

import os
import sys
import threading
import time
from collections.abc import Callable, Iterable, Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import grpc

MANNERS = ("well", "twice", "garbage", "many", "large", "dies", "silent", "version", "elsewhere")


def text(field: int, value: str | bytes) -> bytes:
    """A field that is a text or a message: its number, its length, its bytes."""
    raw = value.encode() if isinstance(value, str) else value
    return bytes([field << 3 | 2, len(raw)]) + raw


def number(field: int, value: int) -> bytes:
    """A field that is a small number."""
    return bytes([field << 3, value])


def texts(message: bytes, field: int) -> Iterator[bytes]:
    """The values of a field of texts or messages, where all lengths are below 128 and nothing else is there."""
    at = 0
    while at < len(message):
        kind, size = message[at], message[at + 1]
        if kind == field << 3 | 2:
            yield message[at + 2 : at + 2 + size]
        at += 2 + size


def device(name: str, health: str, numa: int) -> bytes:
    """A Device in a ListAndWatchResponse."""
    topology = text(1, number(1, numa) if numa else b"")
    return text(1, text(1, name) + text(2, health) + text(3, topology))


class Rude:
    """What the agent calls; requests and answers are bytes."""

    def __init__(self, how: str) -> None:
        self.how = how

    def options(self, _request: bytes, _context: grpc.ServicerContext) -> bytes:
        """It has a preference."""
        return number(2, 1)

    def lists(self, _request: bytes, context: grpc.ServicerContext) -> Iterator[bytes]:
        """Two devices, and whatever HOW says."""
        two = device("dev-0", "Healthy", 0) + device("dev-1", "Healthy", 0)
        if self.how == "garbage":
            yield b"\xff\xff\xff\xff"
        if self.how in ("many", "large"):
            # A device is two bytes, and one without a name.
            yield text(1, b"") * {"many": 2_000_000, "large": 2_500_000}[self.how]
        yield two + two if self.how == "twice" else two
        while context.is_active():
            time.sleep(0.05)

    def preferred(self, request: bytes, _context: grpc.ServicerContext) -> bytes:
        """The last of those available."""
        (content,) = texts(request, 1)
        return text(1, text(1, max(texts(content, 1))))

    def allocate(self, request: bytes, _context: grpc.ServicerContext) -> bytes:
        """A variable; or the end of everything; or nothing, ever."""
        if self.how == "dies":
            os._exit(1)
        if self.how == "silent":
            threading.Event().wait()
        (content,) = texts(request, 1)
        ids = b",".join(texts(content, 1))
        say(f"allocate {ids.decode()}")
        return text(1, text(1, text(1, "DEVICES") + text(2, ids)))


def say(line: str) -> None:
    """Tell whoever has started us."""
    sys.stdout.write(f"{line}\n")
    sys.stdout.flush()


def main(directory: Path, resource: str, how: str) -> None:
    """Serve, register, and go on until killed."""
    rude = Rude(how)
    calls: Iterable[tuple[str, Callable[[bytes, grpc.ServicerContext], bytes]]] = (
        ("GetDevicePluginOptions", rude.options),
        ("GetPreferredAllocation", rude.preferred),
        ("Allocate", rude.allocate),
    )
    handlers = {name: grpc.unary_unary_rpc_method_handler(call) for name, call in calls}
    handlers["ListAndWatch"] = grpc.unary_stream_rpc_method_handler(rude.lists)
    server = grpc.server(ThreadPoolExecutor(max_workers=8))
    server.add_generic_rpc_handlers((grpc.method_handlers_generic_handler("v1beta1.DevicePlugin", handlers),))
    server.add_insecure_port(f"unix:{directory}/rude.sock")
    server.start()
    version = "v1alpha1" if how == "version" else "v1beta1"
    endpoint = "../rude.sock" if how == "elsewhere" else "rude.sock"
    with grpc.insecure_channel(f"unix:{directory}/kubelet.sock") as channel:
        try:
            channel.unary_unary("/v1beta1.Registration/Register", bytes, bytes)(
                text(1, version) + text(2, endpoint) + text(3, resource), timeout=15
            )
        except grpc.RpcError as error:
            say(f"refused: {getattr(error, 'details', str)()}")
            return
    say("registered")
    server.wait_for_termination()


if __name__ == "__main__":
    main(Path(sys.argv[1]), sys.argv[2], sys.argv[3])
