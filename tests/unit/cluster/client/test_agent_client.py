"""The client of an agent's socket: an agent that does not answer is an error, not a wait without end."""

import socket
import threading
from pathlib import Path

import pytest

from nodewright.cluster.client import agent_client
from nodewright.cluster.client.agent_client import AgentClient
from nodewright.model.errors import HostError, InputError


def test_an_agent_that_does_not_answer_is_an_error(tmp_path: Path) -> None:
    with socket.socket(socket.AF_UNIX) as listener:
        listener.bind(str(tmp_path / "agent.sock"))
        listener.listen()
        with pytest.raises(HostError, match=r"no answer within 0\.05 s: the agent is stopped or overloaded"):
            AgentClient(tmp_path / "agent.sock", timeout_s=0.05).get("api/v1/nodes")


def test_an_agent_that_stops_within_its_answer_is_an_error(tmp_path: Path) -> None:
    with socket.socket(socket.AF_UNIX) as listener:
        listener.bind(str(tmp_path / "agent.sock"))
        listener.listen()

        def answer() -> None:
            connection, _ = listener.accept()
            connection.recv(4096)
            connection.sendall(b"HTTP/1.1 200 OK\r\nContent-Length: 100\r\n\r\n{")
            done.wait()
            connection.close()

        done = threading.Event()
        server = threading.Thread(target=answer)
        server.start()
        with pytest.raises(HostError, match="no answer within"):
            AgentClient(tmp_path / "agent.sock", timeout_s=0.2).get("api/v1/nodes")
        done.set()
        server.join()


def test_no_agent_at_all_is_told_at_once(tmp_path: Path) -> None:
    with pytest.raises(HostError, match="no agent listens there"):
        AgentClient(tmp_path / "agent.sock").get("api/v1/nodes")


def test_an_answer_without_end_is_an_error(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(agent_client, "MAX_ANSWER_BYTES", 1000)
    with socket.socket(socket.AF_UNIX) as listener:
        listener.bind(str(tmp_path / "agent.sock"))
        listener.listen()

        def answer() -> None:
            connection, _ = listener.accept()
            connection.recv(4096)
            connection.sendall(b"HTTP/1.1 200 OK\r\n\r\n" + b"0" * 2000)
            connection.close()

        server = threading.Thread(target=answer)
        server.start()
        with pytest.raises(HostError, match="more than 1000 bytes"):
            AgentClient(tmp_path / "agent.sock").get("api/v1/nodes")
        server.join()


@pytest.mark.parametrize("name", ["", ".", "..", "a/b", "../secrets/foo"])
def test_a_name_leads_to_no_other_object(tmp_path: Path, name: str) -> None:
    with pytest.raises(InputError, match="is not a name"):
        AgentClient(tmp_path / "socket").get("api/v1/namespaces", "shop", "pods", name)


def test_a_name_of_any_bytes_is_asked_for(tmp_path: Path) -> None:
    with pytest.raises(HostError):  # nobody answers
        AgentClient(tmp_path / "socket").get("api/v1/nodes", "a\udcff", namespace="\udcff")
