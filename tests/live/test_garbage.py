"""Garbage on every socket of an agent with all of them open: nothing is disturbed, and nothing is left of it."""

import json
import os
import random
import socket
import ssl
import subprocess
import sys
import tempfile
import time
import urllib.error
import urllib.request
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from subprocess import PIPE, STDOUT
from typing import NamedTuple
from urllib.parse import urlsplit

import grpc
import pytest

from nodewright.cluster.client.agent_client import AgentClient
from nodewright.cluster.pod_resources.lister import PodResourcesClient
from tools.agent_idle import running
from tools.source import ROOT

pytestmark = [
    pytest.mark.live,
    pytest.mark.skipif(os.geteuid() != 0, reason="an agent makes cgroups: that takes root"),
]
GPU = "example.com/gpu"
POD = """
apiVersion: v1
kind: Pod
metadata: {name: web}
spec:
  terminationGracePeriodSeconds: 0
  containers:
    - {name: main, image: none, command: [sleep, "1000"], resources: {limits: {example.com/gpu: 1}}}
"""
ROUNDS, PATIENCE_S = 40, 60.0
PREFACE = b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n"
HELLO = bytes.fromhex("16030100c8010000c40303")


class Door(NamedTuple):
    """A socket, and how to see that it answers as it should."""

    family: socket.AddressFamily
    place: str | tuple[str, int]
    answers: Callable[[], None]


def malformed_requests(dice: random.Random) -> list[bytes]:
    """What nobody should say."""
    noise = dice.randbytes(dice.randrange(1, 8192))
    target = dice.choice(("/", "/pods", "/api/v1/pods", "/stats/summary", "/%00", "/" + "x" * 9000))
    head = f"{dice.choice(('GET', 'POST', 'BREW', 'CONNECT'))} {target} HTTP/{dice.choice(('1.1', '1.0', '9'))}\r\n"
    return [
        noise,
        b"",
        b"\0" * 4096,
        head.encode(),
        head.encode() + b"Host: a\r\nHost: b\r\nContent-Length: -1\r\n\r\n" + noise,
        head.encode() + b"Transfer-Encoding: chunked\r\n\r\nffffffffff\r\n" + noise,
        head.encode() + b"X: " + b"y" * 100_000 + b"\r\n\r\n",
        HELLO + noise,
        PREFACE + noise,
        # A frame of settings, and one that is longer than it says.
        PREFACE + bytes.fromhex("000000040000000000") + bytes.fromhex("00ffff010500000001") + noise,
    ]


def send_malformed(door: Door, words: bytes, *, waits: bool) -> None:
    with socket.socket(door.family) as line, suppress(OSError):
        line.settimeout(0.5)
        line.connect(door.place)
        line.sendall(words)
        if waits:
            line.shutdown(socket.SHUT_WR)
            line.recv(1 << 16)


def call_nonsense(path: Path) -> None:
    """Calls that are none, or with messages that are none, in good gRPC."""
    with grpc.insecure_channel(f"unix:{path}", options=[("grpc.default_authority", "localhost")]) as channel:
        for method in ("/v1beta1.Registration/Register", "/v1.PodResourcesLister/List", "/no.Such/Call"):
            for words in (b"\xff" * 64, b"\x0a\xff\xff\xff\x0f", b""):
                call = channel.unary_unary(method, request_serializer=bytes, response_deserializer=bytes)
                with suppress(grpc.RpcError):
                    call(words, timeout=5)


@contextmanager
def process(*words: str) -> Iterator[subprocess.Popen[str]]:
    with subprocess.Popen([sys.executable, *words], stdout=PIPE, stderr=STDOUT, text=True) as process:
        try:
            yield process
        finally:
            process.kill()


def until(holds: Callable[[], bool]) -> None:
    deadline_s = time.monotonic() + PATIENCE_S
    while not holds():
        assert time.monotonic() < deadline_s
        time.sleep(0.05)


def files(pid: int) -> int:
    return len(list(Path(f"/proc/{pid}/fd").iterdir()))


def rss_mib(pid: int) -> float:
    lines = Path(f"/proc/{pid}/status").read_text("ascii").splitlines()
    return next(int(line.split()[1]) for line in lines if line.startswith("VmRSS")) / 1024


def test_garbage_on_every_socket_disturbs_nothing() -> None:
    # Paths of sockets are short: those that pytest makes are not.
    with tempfile.TemporaryDirectory() as place:
        home = Path(place)
        port, healthz = free_ports(2)
        with running(home, *settings(home, port, healthz)) as (agent, client):
            root = home / "root"
            reference = str(ROOT / "examples" / "device-plugin" / "plugin.py")
            words = ("--directory", str(root / "device-plugins"), "--resource", GPU, "gpu-0")
            with process(reference, *words), process(*dashboard(home)) as page:
                assert page.stdout is not None
                link = page.stdout.readline().split()[-1]
                doors = all_doors(client, root, (port, healthz), link)
                # One that comes before the plugin runs without a device, as under a kubelet.
                until(lambda: GPU in client.get("api/v1/nodes")["items"][0]["status"]["allocatable"])
                (home / "pods" / "web.yaml").write_text(POD)
                until(lambda: pods(client) == [("web", "Running", 0)])
                for door in doors:
                    door.answers()
                time.sleep(1)
                before, weight = files(agent), rss_mib(agent)
                dice = random.Random(9)
                for number in range(ROUNDS):
                    for door in doors:
                        for each in malformed_requests(dice):
                            send_malformed(door, each, waits=dice.random() < 0.5)
                    if not number % 5:
                        for name in ("device-plugins", "pod-resources"):
                            call_nonsense(root / name / "kubelet.sock")
                for door in doors:
                    door.answers()
                assert pods(client) == [("web", "Running", 0)]
                result = [each["message"] for each in client.get("api/v1/events")["items"]]
                for why in ("TLS handshake failed: ", "malformed HTTP request"):
                    assert any(why in each for each in result)
                until(lambda: files(agent) <= before)
                assert rss_mib(agent) < weight + 16


def settings(home: Path, port: int, healthz: int) -> list[str]:
    """The options of an agent with everything open."""
    configuration = {
        "apiVersion": "kubelet.config.k8s.io/v1beta1",
        "kind": "KubeletConfiguration",
        "address": "127.0.0.1",
        "port": port,
        "healthzPort": healthz,
        "evictionHard": {},
    }
    (home / "kubelet.yaml").write_text(json.dumps(configuration))
    (home / "tokens.csv").write_text("secret,reader,1\n")
    (home / "pods").mkdir()
    options = ["--config", str(home / "kubelet.yaml"), "--workload-dir", str(home / "pods"), "--kubelet-api"]
    return [*options, "--token-auth-file", str(home / "tokens.csv"), "--grant", "read=user:reader"]


def dashboard(home: Path) -> list[str]:
    return ["-u", "-m", "nodewright", "dashboard", "--socket", str(home / "agent.sock")]


def all_doors(client: AgentClient, root: Path, ports: tuple[int, int], link: str) -> list[Door]:
    """Every socket of the agent, and that of the dashboard beside it."""
    page = urlsplit(link)
    assert page.hostname is not None
    assert page.port is not None
    here = (page.hostname, page.port)
    context = ssl.create_default_context(cafile=root / "pki" / "kubelet.crt")

    def over_tls() -> None:
        request = urllib.request.Request(f"https://127.0.0.1:{ports[0]}/pods")
        request.add_header("Authorization", "Bearer secret")
        with urllib.request.urlopen(request, timeout=PATIENCE_S, context=context) as answer:  # noqa: S310 - ours
            assert len(json.loads(answer.read())["items"]) == 1

    def healthy() -> None:
        with urllib.request.urlopen(f"http://127.0.0.1:{ports[1]}/healthz", timeout=PATIENCE_S) as answer:
            assert answer.read() == b"ok"

    def check_dashboard() -> None:
        # Whoever comes without its link gets no session.
        with pytest.raises(urllib.error.HTTPError) as refused:
            urllib.request.urlopen(f"http://{here[0]}:{here[1]}/dashboard/session", timeout=PATIENCE_S)
        with refused.value:
            assert refused.value.code == 403

    def listed() -> None:
        (pod,) = PodResourcesClient(root / "pod-resources" / "kubelet.sock").pods()
        assert [device.ids for device in pod.containers[0].devices] == [("gpu-0",)]

    def registered() -> None:
        (node,) = client.get("api/v1/nodes")["items"]
        assert node["status"]["allocatable"][GPU] == "1"

    tcp, unix = socket.AF_INET, socket.AF_UNIX
    return [
        Door(tcp, ("127.0.0.1", ports[0]), over_tls),
        Door(tcp, ("127.0.0.1", ports[1]), healthy),
        Door(tcp, here, check_dashboard),
        Door(unix, str(root / "pod-resources" / "kubelet.sock"), listed),
        Door(unix, str(root / "device-plugins" / "kubelet.sock"), registered),
        Door(unix, str(client.path), registered),
    ]


def pods(client: AgentClient) -> list[tuple[str, str, int]]:
    return [
        (each["metadata"]["name"], each["status"]["phase"], status["restartCount"])
        for each in client.get("api/v1/pods")["items"]
        for status in each["status"].get("containerStatuses", ())
    ]


def free_ports(count: int) -> list[int]:
    held = [socket.create_server(("127.0.0.1", 0)) for _ in range(count)]
    numbers = [int(socket.getsockname()[1]) for socket in held]
    for each in held:
        each.close()
    return numbers
