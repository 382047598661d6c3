"""A TCP proxy between an agent and its API server, which can be interrupted."""

import socket
import struct
import threading
import time
from contextlib import suppress
from enum import Enum
from typing import Self

_CHUNK_BYTES = 65536
_SLOW_S = 0.2


class Link(Enum):
    """What the proxy does with connections."""

    WHOLE = "whole"
    REFUSED = "refused"
    """Connections are reset, new ones too."""
    SILENT = "silent"
    """No byte is forwarded; what was sent arrives when the link is whole again."""
    SLOW = "slow"
    """Each piece is late."""


class PartitionProxy:
    """A proxy for `with`; ``target_port`` is to be set before the first connection."""

    def __init__(self) -> None:
        self._listener = socket.create_server(("127.0.0.1", 0), backlog=64)
        self.port: int = self._listener.getsockname()[1]
        self.target_port = 0
        self._link = Link.WHOLE
        self._changed = threading.Condition()
        self._sockets = set[socket.socket]()
        self._is_closed = False

    def set_link(self, link: Link) -> None:
        """Changes what happens to present and future connections."""
        with self._changed:
            self._link = link
            self._changed.notify_all()
            if link is Link.REFUSED:
                self._reset_all()

    def __enter__(self) -> Self:
        threading.Thread(target=self._accept, daemon=True).start()
        return self

    def __exit__(self, *_: object) -> None:
        with self._changed:
            self._is_closed = True
            self._reset_all()
            self._changed.notify_all()
        self._listener.close()

    def _reset_all(self) -> None:
        for each in self._sockets:
            with suppress(OSError):
                each.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))
                each.shutdown(socket.SHUT_RDWR)
        self._sockets.clear()

    def _accept(self) -> None:
        with suppress(OSError):
            while True:
                client, _ = self._listener.accept()
                if self._link is Link.REFUSED:
                    client.close()
                    continue
                threading.Thread(target=self._connect, args=(client,), daemon=True).start()

    def _connect(self, client: socket.socket) -> None:
        try:
            server = socket.create_connection(("127.0.0.1", self.target_port))
        except OSError:
            client.close()
            return
        with self._changed:
            self._sockets |= {client, server}
        back = threading.Thread(target=self._forward, args=(server, client), daemon=True)
        back.start()
        self._forward(client, server)
        back.join()
        with self._changed:
            self._sockets -= {client, server}
        client.close()
        server.close()

    def _forward(self, source: socket.socket, target: socket.socket) -> None:
        with suppress(OSError):
            while data := source.recv(_CHUNK_BYTES):
                with self._changed:
                    while self._link is Link.SILENT and not self._is_closed:
                        self._changed.wait()
                    if self._link is Link.REFUSED or self._is_closed:
                        break
                if self._link is Link.SLOW:
                    time.sleep(_SLOW_S)
                target.sendall(data)
        for each in (source, target):
            with suppress(OSError):
                each.shutdown(socket.SHUT_RDWR)
