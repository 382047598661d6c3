"""A real kubelet without an API server: its own directories, port and cgroups, and static pods from a directory."""

import http.client
import json
import os
import shutil
import signal
import ssl
import subprocess
import time
from collections.abc import Iterator, Mapping
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Any

from tests.live.containerd import APP
from tests.support.real_api_server import ASSETS, free_port

NODE = "worker"
_START_S = 60
_V1 = Path("/sys/fs/cgroup")
_MACHINE_FILES = (
    "/sys/devices/system/cpu",
    "/sys/devices/system/node",
    "/sys/kernel/mm/hugepages",
    "/proc/meminfo",
    "/proc/cpuinfo",
)
_CONTROLLERS = ("cpu", "cpuacct", "cpuset", "memory", "pids", "hugetlb", "systemd", "cpu,cpuacct")


def lacking_kubelet() -> str:
    """Why no kubelet can be started here; empty: one can."""
    if os.geteuid() != 0:
        return "a kubelet needs root"
    if not (Path(ASSETS) / "kubelet").is_file():
        return "KUBEBUILDER_ASSETS names no directory with a kubelet"
    if not (_V1 / "cpuset").is_dir():
        return "the kubelet of these tests runs on cgroup v1"
    return ""


class RealKubelet:
    """A running kubelet."""

    def __init__(
        self,
        folder: Path,
        endpoint: str,
        configuration: Mapping[str, Any],
        *,
        kubeconfig: Path | None = None,
        machine: Path | None = None,
    ) -> None:
        """``machine`` holds files of /sys and /proc that it sees in place of this machine's."""
        self._kubeconfig, self._machine = kubeconfig, machine
        self.root, self.manifests, self.port = folder / "kubelet", folder / "manifests", free_port()
        self.log_file = folder / "kubelet.log"
        self._folder = folder
        self._process: subprocess.Popen[bytes] | None = None
        self.cgroup = f"/nodewright-kubelet-{os.getpid()}"
        self.configuration = {
            "apiVersion": "kubelet.config.k8s.io/v1beta1",
            "kind": "KubeletConfiguration",
            "staticPodPath": str(self.manifests),
            "containerRuntimeEndpoint": endpoint,
            "port": self.port,
            "address": "127.0.0.1",
            "healthzPort": 0,
            "readOnlyPort": 0,
            "authentication": {"anonymous": {"enabled": True}, "webhook": {"enabled": False}},
            "authorization": {"mode": "AlwaysAllow"},
            "failSwapOn": False,
            "failCgroupV1": False,
            "cgroupRoot": self.cgroup,
            "cgroupDriver": "cgroupfs",
            "cpuManagerPolicy": "static",
            "reservedSystemCPUs": "0",
            "cpuManagerReconcilePeriod": "1s",
            "enforceNodeAllocatable": ["pods"],
            "evictionHard": {},
            "fileCheckFrequency": "1s",
            "syncFrequency": "10s",
            "podLogsDir": str(folder / "logs"),
            **configuration,
        }
        self.config_file = folder / "config.yaml"

    @property
    def url(self) -> str:
        """The address of its API."""
        return f"https://127.0.0.1:{self.port}"

    @property
    def pid(self) -> int:
        """Its process."""
        assert self._process is not None
        return self._process.pid

    @property
    def is_running(self) -> bool:
        """Whether it has not ended."""
        return self._process is not None and self._process.poll() is None

    def start(self) -> None:
        """Starts it, and waits until it answers."""
        for place in (self.root, self.manifests):
            place.mkdir(exist_ok=True)
        self.config_file.write_text(json.dumps(self.configuration))
        self._make_cgroups()
        command = [f"{ASSETS}/kubelet", f"--config={self.config_file}", f"--root-dir={self.root}"]
        command += [f"--hostname-override={NODE}", f"--cert-dir={self._folder}/pki", "--v=2"]
        command += [] if self._kubeconfig is None else [f"--kubeconfig={self._kubeconfig}"]
        if self._machine is not None:
            # In a mount namespace of its own; nothing of it is seen outside.
            mounts = (f"mount --bind '{self._machine}{path}' {path}" for path in _MACHINE_FILES)
            script = " && ".join((*mounts, 'exec "$@"'))
            command = ["unshare", "--mount", "--propagation=private", "sh", "-c", script, "sh", *command]
        with self.log_file.open("ab") as log:
            self._process = subprocess.Popen(command, stdout=log, stderr=log, start_new_session=True)
        deadline = time.monotonic() + _START_S
        while self._status() != 200:
            assert self._process.poll() is None, self.log()
            assert time.monotonic() < deadline, self.log()
            time.sleep(0.1)

    def stop(self) -> None:
        """Stops it; its containers keep running."""
        if self._process is not None:
            self._process.terminate()
            self._process.wait(20)
            self._process = None

    def put(self, pod: Mapping[str, Any]) -> None:
        """Writes a static pod, replaced as a whole."""
        path = self.manifests / f"{pod['metadata']['name']}.json"
        temporary = self._folder / path.name
        temporary.write_text(json.dumps(pod))
        temporary.replace(path)

    def remove(self, name: str) -> None:
        """Removes a static pod."""
        (self.manifests / f"{name}.json").unlink()

    def pods(self) -> dict[str, dict[str, Any]]:
        """The pods that it reports, by name in their manifests."""
        body = json.loads(self._get("/pods")[1])
        return {item["metadata"]["name"].removesuffix(f"-{NODE}"): item for item in body.get("items") or ()}

    def log(self) -> str:
        """The last lines of its log."""
        return "\n".join(self.log_file.read_text("utf-8", "replace").splitlines()[-30:])

    def close(self) -> None:
        """Stops it, and removes its containers' processes, its cgroups and its directory."""
        self.stop()
        # The runtime has made groups in the hierarchies that the kubelet does not use as well.
        tops = [hierarchy / self.cgroup.strip("/") for hierarchy in _V1.iterdir()]
        for top in filter(Path.is_dir, tops):
            for group, _, _ in os.walk(top):
                with suppress(OSError):  # The runtime may remove the group meanwhile.
                    for pid in Path(group, "cgroup.procs").read_text().split():
                        with suppress(ProcessLookupError):
                            os.kill(int(pid), signal.SIGKILL)
        for top in filter(Path.is_dir, tops):
            for place, _, _ in os.walk(top, topdown=False):
                _remove_cgroup(Path(place))
        for line in reversed(Path("/proc/self/mountinfo").read_text().splitlines()):
            if (mount := line.split()[4]).startswith(str(self.root)):  # It mounts its directory on itself.
                subprocess.run(["umount", "-l", mount], check=False)
        shutil.rmtree(self.root, ignore_errors=True)

    def _make_cgroups(self) -> None:
        for controller in _CONTROLLERS:
            if not (_V1 / controller).is_dir():
                continue
            place = _V1 / controller / self.cgroup.strip("/")
            place.mkdir(exist_ok=True)
            if controller == "cpuset":
                for name in ("cpuset.mems", "cpuset.cpus"):
                    (place / name).write_text((_V1 / controller / name).read_text())

    def _status(self) -> int:
        try:
            return self._get("/healthz")[0]
        except (OSError, http.client.HTTPException):
            return 0

    def _get(self, path: str) -> tuple[int, bytes]:
        context = ssl.create_default_context()
        context.check_hostname, context.verify_mode = False, ssl.CERT_NONE
        connection = http.client.HTTPSConnection("127.0.0.1", self.port, context=context, timeout=10)
        try:
            connection.request("GET", path)
            response = connection.getresponse()
            return response.status, response.read()
        finally:
            connection.close()


def _remove_cgroup(place: Path) -> None:
    """Removes a group, whose processes may still be ending."""
    for _ in range(100):
        try:
            place.rmdir()
        except FileNotFoundError:
            return
        except OSError:
            time.sleep(0.05)
        else:
            return
    raise AssertionError(f"{place} has processes: {(place / 'cgroup.procs').read_text()}")


@contextmanager
def real_kubelet(folder: Path, endpoint: str, **configuration: Any) -> Iterator[RealKubelet]:
    """A running kubelet; nothing of it is left afterwards, except its pods' containers at the runtime."""
    kubelet = RealKubelet(folder, endpoint, configuration)
    try:
        kubelet.start()
        yield kubelet
    finally:
        kubelet.close()


def static_pod(name: str, **resources: str) -> dict[str, Any]:
    """A static pod that sleeps; resources are requests and limits."""
    container = {
        "name": "main",
        "image": APP,
        "imagePullPolicy": "Never",
        "resources": {"requests": resources, "limits": resources} if resources else {},
    }
    spec = {"hostNetwork": True, "terminationGracePeriodSeconds": 1, "containers": [container]}
    metadata = {"name": name, "namespace": "default"}
    return {"apiVersion": "v1", "kind": "Pod", "metadata": metadata, "spec": spec}
