"""How long it takes until the API server has what happened to a container: `python -m tools.status_times`.

For the joined agent and the real kubelet, one container at a time: from containerd's event (a container has started, or has
ended), and from the moment at which CRI shows it, which is later, to the event of a watch of pods. Writes
docs/figures/joined-status.json.
"""

import argparse
import http.client
import json
import os
import re
import shutil
import signal
import statistics
import subprocess
import sys
import tempfile
import threading
import time
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager, suppress
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import grpc
from tests.live.containerd import APP, Containerd
from tests.support.real_api_server import NODE_TOKEN, RealAPIServer, real_api_server

from nodewright.agent.runtimes.cri import api_pb2 as cri
from nodewright.agent.runtimes.cri.channel import LIST_CONTAINERS
from tools.demo_cluster import missing_parts
from tools.joined import PODS, Node, connection, joined, until
from tools.source import ROOT, commit

FIGURES = ROOT / "docs" / "figures" / "joined-status.json"
_ADMIN = {"Authorization": "Bearer admin"}
_EVENT = re.compile(r"^(\S+ \S+) \+0000 UTC \S+ /tasks/(start|exit) (\{.*\})$")
_STATES = {"start": "running", "exit": "terminated"}
_LASTS_S = 1.0
_POLL_S, _MARK_MS = 0.004, 50


class ContainerEvents:
    """When containerd reported that a container started or ended, by id and event; in seconds since 1970."""

    def __init__(self, runtime: Containerd) -> None:
        command = ["ctr", "--address", str(runtime.socket), "-n", "k8s.io", "events"]
        self._process = subprocess.Popen(command, stdout=subprocess.PIPE, text=True)
        self.times_s: dict[tuple[str, str], float] = {}
        threading.Thread(target=self._run, daemon=True).start()

    def close(self) -> None:
        """Ends the reading."""
        self._process.terminate()
        self._process.wait()

    def _run(self) -> None:
        assert self._process.stdout is not None
        for line in self._process.stdout:
            if match := _EVENT.match(line):
                moment, what, event = match.groups()
                whole, _, fraction = moment.partition(".")
                at = datetime.fromisoformat(whole).replace(tzinfo=UTC)
                body = json.loads(event)
                if body.get("id", body["container_id"]) == body["container_id"]:
                    self.times_s[body["container_id"], what] = at.timestamp() + float(f"0.{fraction or 0}")


class RuntimeStates:
    """When CRI showed a container in a state first, by id and state; read all the time."""

    def __init__(self, runtime: Containerd) -> None:
        self.times_s: dict[tuple[str, str], float] = {}
        self._ended = threading.Event()
        self._channel = grpc.insecure_channel(f"unix://{runtime.socket}")
        self._thread = threading.Thread(target=self._run, daemon=True)
        self._thread.start()

    def close(self) -> None:
        """Ends the reading."""
        self._ended.set()
        self._thread.join()
        self._channel.close()

    def _run(self) -> None:
        read = self._channel.unary_unary(
            LIST_CONTAINERS.path,
            request_serializer=cri.ListContainersRequest.SerializeToString,
            response_deserializer=cri.ListContainersResponse.FromString,
        )
        names = {cri.CONTAINER_RUNNING: "running", cri.CONTAINER_EXITED: "terminated"}
        while not self._ended.wait(_POLL_S):
            containers = read(cri.ListContainersRequest()).containers
            now_s = time.time()
            for container in containers:
                if container.state in names:
                    self.times_s.setdefault((container.id, names[container.state]), now_s)


class ContainerStates:
    """When a watch of pods showed a container in a state first, by id and state; in seconds since 1970."""

    def __init__(self, server: RealAPIServer) -> None:
        self.times_s: dict[tuple[str, str], float] = {}
        self._server, self._ends = server, False
        threading.Thread(target=self._run, daemon=True).start()

    def close(self) -> None:
        """Ends the watch with its next event."""
        self._ends = True

    def _run(self) -> None:
        while not self._ends:
            with suppress(OSError, http.client.HTTPException, ValueError):
                watch = connection(self._server)
                watch.request("GET", f"{PODS}?watch=true", headers=_ADMIN)
                response = watch.getresponse()
                while not self._ends and (line := response.readline()):
                    now_s = time.time()
                    event = json.loads(line)
                    if event["type"] == "ERROR":
                        break
                    for status in event["object"].get("status", {}).get("containerStatuses") or ():
                        id_ = status.get("containerID", "").rpartition("/")[2]
                        for state in status.get("state") or {}:
                            self.times_s.setdefault((id_, state), now_s)


Sources = tuple[ContainerEvents, RuntimeStates, ContainerStates]


@contextmanager
def followed(server: RealAPIServer, runtime: Containerd) -> Iterator[Sources]:
    """What all of them say of containers from now on."""
    sources = (ContainerEvents(runtime), RuntimeStates(runtime), ContainerStates(server))
    try:
        time.sleep(1)
        yield sources
    finally:
        for source in sources:
            source.close()


def measured(node: Node, sources: Sources, times: int) -> dict[str, Any]:
    """The figures of one node, in milliseconds."""
    events, runtime, states = sources
    delays: dict[str, dict[str, list[float]]] = {what: {"event": [], "runtime": []} for what in _STATES}
    for number in range(times):
        before = {id_ for id_, _ in states.times_s}
        answer = node.server.create(PODS, {"metadata": {"name": f"pod-{number}"}, "spec": _spec(number)})
        assert answer.code == 201, answer.message

        def ended(before: set[str] = before) -> set[str]:
            return {id_ for id_, state in states.times_s if state == "terminated"} - before

        until(lambda: bool(ended()), "a container ends")
        (id_,) = ended()
        for what, state in _STATES.items():
            seen_s = states.times_s[id_, state]
            delays[what]["event"].append((seen_s - events.times_s[id_, what]) * 1000)
            delays[what]["runtime"].append((seen_s - runtime.times_s[id_, state]) * 1000)
        node.remove_pods()
    return {
        f"{what}, from the {since}": {
            "median": round(statistics.median(values), 1),
            "worst": round(max(values), 1),
            "within50": sum(value <= _MARK_MS for value in values),
        }
        for what, kinds in delays.items()
        for since, values in kinds.items()
    }


def _spec(number: int) -> dict[str, Any]:
    """A pod that goes on when its first container has ended."""
    script = f"sleep {_LASTS_S + number % 10 / 20}; exit 0"
    stays = "trap 'exit 0' TERM; sleep 100000 & wait"
    return {
        "nodeName": "worker",
        "hostNetwork": True,
        "restartPolicy": "Never",
        "automountServiceAccountToken": False,
        "terminationGracePeriodSeconds": 1,
        "containers": [
            {
                "name": name,
                "image": APP,
                "imagePullPolicy": "Never",
                "command": ["/bin/busybox", "sh", "-c", command],
            }
            for name, command in (("stays", stays), ("ends", script))
        ],
    }


def main() -> int:
    """Measures both, one after the other, and writes the figures."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--times", type=int, default=50)
    parser.add_argument("--kinds", nargs="+", default=["agent", "kubelet"])
    parser.add_argument("--figures", type=Path, default=FIGURES)
    options = parser.parse_args()
    if missing := missing_parts():
        print(f"needs {missing}", file=sys.stderr)
        return 0
    # What is stopped by a signal leaves nothing either.
    signal.signal(signal.SIGTERM, lambda *_: sys.exit(128 + signal.SIGTERM))
    figures: dict[str, Any] = {}
    for kind in options.kinds:
        with ExitStack() as stack:
            folder = Path(tempfile.mkdtemp(prefix="nodewright-status-"))
            stack.callback(shutil.rmtree, folder, ignore_errors=True)
            server = stack.enter_context(real_api_server(folder, checks_rights=True))
            server.write_kubeconfig(folder / "node.kubeconfig", NODE_TOKEN)
            runtime = stack.enter_context(Containerd())
            node = stack.enter_context(joined(kind, server, runtime, folder))
            parts = stack.enter_context(followed(server, runtime))
            figures[kind] = measured(node, parts, options.times)
            print(kind, figures[kind], flush=True)
    figures |= {
        "unit": "milliseconds",
        "times": options.times,
        "commit": commit(),
        "date": time.strftime("%Y-%m-%d"),
        "loadAverage": round(os.getloadavg()[1], 1),
    }
    options.figures.write_text(json.dumps(figures, indent=2) + "\n", "utf-8")
    return 0


if __name__ == "__main__":
    sys.exit(main())
