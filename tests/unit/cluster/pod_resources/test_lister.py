"""Asking PodResources sockets on which somebody else listens, nobody, or somebody who talks nonsense."""

import os
import socket
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest
from tests.support.fake_servers import serve_raw_answers

from nodewright.cluster.pod_resources import api_pb2 as v1
from nodewright.cluster.pod_resources.lister import PodResourcesClient
from nodewright.model.errors import HostError


@contextmanager
def listening(path: Path, answer: Callable[[socket.socket], None]) -> Iterator[None]:
    """Somebody who takes connections and does this with them."""
    with socket.socket(socket.AF_UNIX, socket.SOCK_STREAM) as place:
        place.bind(os.fspath(path))
        place.listen()

        def serve() -> None:
            while True:
                try:
                    line, _ = place.accept()
                except OSError:
                    return
                with line:
                    answer(line)

        thread = threading.Thread(target=serve, daemon=True)
        thread.start()
        try:
            yield
        finally:
            place.shutdown(socket.SHUT_RDWR)
            thread.join(5)


def lister_output(path: Path, limit_s: float = 30) -> str:
    with pytest.raises(HostError) as caught:
        PodResourcesClient(path, limit_s).pods()
    assert caught.value.place == str(path)
    return caught.value.error


def test_a_socket_without_a_server_is_a_clear_error(tmp_path: Path) -> None:
    path = tmp_path / "s"
    assert lister_output(path) == "no such socket: is the kubelet running?"
    path.write_text("", "ascii")
    assert lister_output(path) == "not a socket"
    path.unlink()
    with socket.socket(socket.AF_UNIX, socket.SOCK_STREAM) as left:
        left.bind(os.fspath(path))
    assert lister_output(path).startswith("no kubelet answers: ")


def test_garbage_on_the_socket_is_no_answer(tmp_path: Path) -> None:
    with listening(tmp_path / "s", lambda line: line.sendall(b"HTTP/1.1 400 Bad Request\r\n\r\n" * 50)):
        assert "answer" in lister_output(tmp_path / "s")


@pytest.mark.slow
def test_who_never_answers_is_not_waited_for(tmp_path: Path) -> None:
    def sleep(line: socket.socket) -> None:
        line.recv(1 << 16)
        threading.Event().wait(1)

    with listening(tmp_path / "s", sleep):
        assert "answer" in lister_output(tmp_path / "s", 0.3)


@pytest.mark.parametrize(
    ("answer", "expected"),
    [
        (b"\xff\xff", "no answer of List"),
        (b"\x0a\x00", "a pod without name or namespace"),
        (
            v1.ListPodResourcesResponse(
                pod_resources=[
                    v1.PodResources(
                        name="a", namespace="b", containers=[v1.ContainerResources(name="c", cpu_ids=[-1])]
                    )
                ]
            ).SerializeToString(),
            "pod b/a, container c: there is no CPU -1",
        ),
    ],
)
def test_invalid_responses_are_errors(tmp_path: Path, answer: bytes, expected: str) -> None:
    with serve_raw_answers(tmp_path / "s", List=answer):
        assert expected in lister_output(tmp_path / "s")


def test_a_service_without_the_call_is_an_error(tmp_path: Path) -> None:
    with serve_raw_answers(tmp_path / "s"):
        assert "does not implement PodResources v1" in lister_output(tmp_path / "s")
