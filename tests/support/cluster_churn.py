"""Pods of a real API server that are created, deleted and created again by name, and what must never happen to them."""

import http.client
import json
import random
import ssl
import threading
import time
from contextlib import suppress
from pathlib import Path
from typing import Any, Self

from tests.support.cluster_bench import PODS, ClusterBench

TERMINAL_PHASES = ("Succeeded", "Failed")
_LIMIT_S = 120.0
# A container writes down its start, and holds a lock of its pod's name for as long as it runs.
_START = 'date "+$NAME %T.%N" >>"$AT/starts-$UID"; exec 9>>"$AT/lock-$NAME"; flock -n 9 || echo "$NAME twice: $UID" >>"$AT/wrong"; '
# A container with exclusive CPUs holds a lock of each of them.
_CPUS = (
    'for cpu in $(sed -n "s/^Cpus_allowed_list:\\t//p" /proc/self/status | tr , " "); do '
    'exec 8>>"$AT/cpu-$cpu"; flock -n 8 || echo "CPU $cpu has two owners: $UID" >>"$AT/wrong"; done; '
)
_STAYS = "trap 'exit 0' TERM; while :; do sleep 1000 8>&- 9>&- & wait; done"
_ENDS = "sleep 0.3 8>&- 9>&-; exit 0"
_STATEFUL, _EXCLUSIVE, _JOBS = ("web-0", "web-1", "web-2", "web-3"), ("pinned-0", "pinned-1"), 2


class ClusterChurn:
    """Creates and deletes pods at random; notes what is wrong."""

    def __init__(self, bench: ClusterBench, folder: Path, seed: int) -> None:
        self.bench, self.cgroups, self.folder = bench, bench.cgroups, folder
        self.wrong: list[str] = []
        self.counts = {"created": 0, "deleted": 0, "jobs": 0}
        self._choose = random.Random(seed)
        self._forced = set[str]()
        self._ends = threading.Event()
        self._watch = threading.Thread(target=self._check_ends, daemon=True)

    def __enter__(self) -> Self:
        self._watch.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._ends.set()

    def step(self) -> None:
        """Something happens to pods, as controllers and users have it happen."""
        pods = self.pods()
        for name in (*_STATEFUL, *_EXCLUSIVE):
            pod = pods.get(name)
            if pod is None:
                self._create(name)
            elif pod["status"].get("phase") in TERMINAL_PHASES or self._choose.random() < 0.15:
                self._delete(name, self._choose.choice((0, 1, 1, 2)) if pod["status"].get("phase") else 1)
        jobs = [name for name in pods if name.startswith("job-")]
        if len(jobs) < _JOBS:
            self.counts["jobs"] += 1
            self._create(f"job-{self.counts['jobs']}")
        for name in jobs:
            if pods[name]["status"].get("phase") in TERMINAL_PHASES:
                self._delete(name, 1)
            elif self._choose.random() < 0.1:
                # A pod that no other replaces may be deleted without regard for what runs.
                self._forced.add(pods[name]["metadata"]["uid"])
                self._delete(name, 0)

    def pods(self) -> dict[str, dict[str, Any]]:
        """All pods by their name."""
        items = self.bench.server.request("GET", PODS).body["items"]
        return {pod["metadata"]["name"]: pod for pod in items}

    def settle(self) -> None:
        """Every pod that is wanted runs, and every other ends; one of two with an exclusive CPU has room."""
        deadline = time.monotonic() + _LIMIT_S
        while left := self._unsettled():
            if time.monotonic() > deadline:
                self.wrong.append(f"forgotten: {left}")
                break
            for name, pod in self.pods().items():
                if pod["status"].get("phase") in TERMINAL_PHASES:
                    self._delete(name, 1)
            time.sleep(0.2)

    def remove_all(self) -> None:
        """No pod is left in the cluster, and nothing of one on the machine."""
        for name in self.pods():
            self._delete(name, 1)
        deadline = time.monotonic() + _LIMIT_S
        while (left := [*self.pods(), *self._left_on_machine()]) and time.monotonic() < deadline:
            time.sleep(0.2)
        self.wrong += [f"left: {each}" for each in left]
        self._ends.set()
        with suppress(FileNotFoundError):
            self.wrong += (self.folder / "wrong").read_text("utf-8").splitlines()
        for starts in self.folder.glob("starts-*"):
            times = starts.read_text("utf-8").splitlines()
            if len(times) > 1:
                self.wrong.append(f"{starts.name}: {times}")

    def _unsettled(self) -> list[str]:
        pods = self.pods()
        for name in (*_STATEFUL, _EXCLUSIVE[0]):
            if name not in pods:
                self._create(name)
        if _EXCLUSIVE[1] in pods:
            self._delete(_EXCLUSIVE[1], 1)
        return [
            f"{name} {pod['status'].get('phase')}"
            for name, pod in self.pods().items()
            if pod["status"].get("phase") != "Running" or "deletionTimestamp" in pod["metadata"]
        ]

    def _left_on_machine(self) -> list[str]:
        root = f"{self.cgroups.root}/kubepods"
        groups = (
            name
            for parent in (root, f"{root}/burstable", f"{root}/besteffort")
            for name in self.cgroups.children(parent)
            if "/pod" in name.removeprefix(root)
        )
        kept = (str(path) for path in (self.bench.agent.folder / "root/pods").glob("*"))
        return [*groups, *map(str, self.cgroups.processes(self.cgroups.root)), *kept]

    def _create(self, name: str) -> None:
        is_exclusive, is_job = name in _EXCLUSIVE, name.startswith("job-")
        amounts = {"cpu": "1", "memory": "16Mi"} if is_exclusive else {}
        variable = {"name": "UID", "valueFrom": {"fieldRef": {"fieldPath": "metadata.uid"}}}
        container = {
            "name": "main",
            "image": "none",
            "command": ["sh", "-c", _START + (_CPUS if is_exclusive else "") + (_ENDS if is_job else _STAYS)],
            "env": [{"name": "AT", "value": str(self.folder)}, {"name": "NAME", "value": name}, variable],
            "resources": {"limits": amounts},
        }
        spec = {
            "nodeName": "worker",
            "automountServiceAccountToken": False,
            "terminationGracePeriodSeconds": 1,
            "restartPolicy": "Never" if is_job else "Always",
            "containers": [container],
        }
        answer = self.bench.server.create(PODS, {"metadata": {"name": name}, "spec": spec})
        assert answer.code in (201, 409), answer.message
        self.counts["created"] += answer.code == 201

    def _delete(self, name: str, grace_s: int) -> None:
        # A grace period of 0 takes the object away while containers may run: only where nothing replaces the pod.
        least_s = 0 if name.startswith("job-") else 1
        path = f"{PODS}/{name}?gracePeriodSeconds={max(grace_s, least_s)}"
        self.counts["deleted"] += self.bench.server.request("DELETE", path).code == 200

    def _check_ends(self) -> None:
        """Watches all pods: one that is gone, or has a terminal phase, has no process."""
        while not self._ends.is_set():
            with suppress(OSError, http.client.HTTPException, ValueError):
                self._follow()

    def _follow(self) -> None:
        context = ssl.create_default_context()
        context.check_hostname, context.verify_mode = False, ssl.CERT_NONE
        connection = http.client.HTTPSConnection(
            "127.0.0.1", self.bench.server.port, context=context, timeout=30
        )
        connection.request("GET", f"{PODS}?watch=true", headers={"Authorization": "Bearer admin"})
        response = connection.getresponse()
        while not self._ends.is_set() and (line := response.readline()):
            event = json.loads(line)
            uid, phase = event["object"]["metadata"]["uid"], event["object"].get("status", {}).get("phase")
            if uid not in self._forced and (event["type"] == "DELETED" or phase in TERMINAL_PHASES):
                processes = self._processes(uid)
                if processes:
                    end = "deleted" if event["type"] == "DELETED" else phase
                    self.wrong.append(
                        f"{event['object']['metadata']['name']} {uid} is {end} and runs: {processes}"
                    )
        connection.close()

    def _processes(self, uid: str) -> list[str]:
        root = f"{self.cgroups.root}/kubepods"
        paths = (f"{parent}/pod{uid}" for parent in (root, f"{root}/burstable", f"{root}/besteffort"))
        return [
            Path(f"/proc/{pid}/cmdline").read_text("utf-8").replace("\0", " ")[:80]
            for path in paths
            for pid in self.cgroups.processes(path)
            if Path(f"/proc/{pid}").exists()
        ]
