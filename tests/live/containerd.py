"""A containerd of the tests' own: its own root, state and socket, two small images, and no trace of it afterwards."""

import io
import json
import os
import shutil
import signal
import subprocess
import tarfile
import tempfile
import time
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from hashlib import sha256
from pathlib import Path
from types import TracebackType
from typing import Any, Self

BUSYBOX = Path("/bin/busybox")
PROGRAMS = ("containerd", "containerd-shim-runc-v2", "ctr", "runc")
APP, PAUSE = "docker.io/nodewright/app:1", "docker.io/nodewright/pause:1"
USER = "docker.io/nodewright/user:1"
"""The same as the application's image, but run as user 1234."""
PATH = os.pathsep.join(filter(None, (os.environ.get("CONTAINERD_BIN"), os.environ["PATH"])))
"""Where the programs are: CONTAINERD_BIN names the directory of another release than the one that is installed."""

_CONFIG = """
version = 2
root = "{root}/lib"
state = "{root}/run"
[grpc]
  address = "{root}/containerd.sock"
[ttrpc]
  address = "{root}/containerd.sock.ttrpc"
[plugins."io.containerd.grpc.v1.cri"]
  sandbox_image = "{pause}"
  restrict_oom_score_adj = true
  disable_apparmor = true
  netns_mounts_under_state_dir = true
  stream_server_port = "0"
  [plugins."io.containerd.grpc.v1.cri".containerd]
    snapshotter = "{snapshotter}"
    default_runtime_name = "runc"
    [plugins."io.containerd.grpc.v1.cri".containerd.runtimes.runc]
      runtime_type = "io.containerd.runc.v2"
      [plugins."io.containerd.grpc.v1.cri".containerd.runtimes.runc.options]
        SystemdCgroup = false
        Root = "{root}/runc"
  [plugins."io.containerd.grpc.v1.cri".cni]
    bin_dir = "{root}/cni/bin"
    conf_dir = "{root}/cni/conf"
[plugins."io.containerd.internal.v1.opt"]
  path = "{root}/opt"
"""

# It gives every pod an address that nobody listens at: enough to see that addresses arrive.
_CNI = """#!/bin/sh
case "$CNI_COMMAND" in
  ADD|CHECK) echo '{"cniVersion":"0.3.1","interfaces":[{"name":"eth0","sandbox":"'"$CNI_NETNS"'"}],'\\
    '"ips":[{"version":"4","address":"10.99.0.7/24","interface":0}]}' ;;
  VERSION) echo '{"cniVersion":"0.3.1","supportedVersions":["0.3.1"]}' ;;
esac
"""
_CNI_CONFIG = {"cniVersion": "0.3.1", "name": "made-up", "plugins": [{"type": "made-up"}]}


def lacking() -> str:
    """Why no containerd can be started here; empty: one can."""
    if os.geteuid() != 0:
        return "containerd needs root"
    missing = [name for name in PROGRAMS if shutil.which(name, path=PATH) is None]
    missing += [] if BUSYBOX.exists() else [str(BUSYBOX)]
    return f"not installed: {', '.join(missing)} (`make test` installs them as root)" if missing else ""


def stop_process(pid: int) -> None:
    """Sends SIGSTOP and returns when no thread runs: the others run on for up to 20 ms after `kill` has returned."""
    os.kill(pid, signal.SIGSTOP)
    deadline_s = time.monotonic() + 20
    while not all(state == "T" for state in _thread_states(pid)):
        assert time.monotonic() < deadline_s, _thread_states(pid)
        time.sleep(0.001)


def _thread_states(pid: int) -> list[str]:
    stats = Path(f"/proc/{pid}/task").glob("*/stat")
    with suppress(FileNotFoundError, ProcessLookupError):
        return [stat.read_text().rpartition(")")[2].split()[0] for stat in stats]
    return ["a thread ended meanwhile"]


class Containerd:
    """An instance for `with`; `stop`, `start` and `frozen` are for what happens to runtimes."""

    def __init__(self, pause: str = PAUSE, *, has_own_mounts: bool = False) -> None:
        self.root = Path(tempfile.mkdtemp(prefix=f"nodewright-containerd-{os.getpid()}-", dir="/tmp"))
        self.socket = self.root / "containerd.sock"
        self.endpoint = f"unix://{self.socket}"
        self._pause = pause
        self._around = ["unshare", "--mount", "--propagation=private"] if has_own_mounts else []
        self._process: subprocess.Popen[bytes] | None = None

    @property
    def pid(self) -> int:
        """The daemon's."""
        assert self._process is not None
        return self._process.pid

    def start(self) -> None:
        """It runs and answers."""
        with (self.root / "containerd.log").open("ab") as log:
            self._process = subprocess.Popen(
                [*self._around, _program("containerd"), "--config", self.root / "config.toml"],
                env={**os.environ, "PATH": PATH},
                stdout=log,
                stderr=log,
                start_new_session=True,
            )
        for _ in range(200):
            if self.socket.exists() and self._ctr("version", check=False).returncode == 0:
                return
            assert self._process.poll() is None, self.log()
            time.sleep(0.05)
        raise AssertionError(self.log())

    def stop(self, how: signal.Signals = signal.SIGTERM) -> None:
        """It runs no more; its containers do."""
        process, self._process = self._process, None
        if process is not None and process.poll() is None:
            process.send_signal(signal.SIGCONT)
            process.send_signal(how)
            process.wait(20)

    def lose_records(self) -> list[int]:
        """Its root and its state are removed while containers run; it comes back with nothing but the images.

        The shims of these containers, which nothing ends.
        """
        shims = self.shims()
        self.stop(signal.SIGKILL)
        for place in sorted(self.mounts(), reverse=True):
            subprocess.run(["umount", "-l", place], check=False)
        for name in ("lib", "run"):
            shutil.rmtree(self.root / name)
        self.start()
        self.load(APP)
        self.load(PAUSE)
        return shims

    @contextmanager
    def frozen(self) -> Iterator[None]:
        """It takes calls and answers none until the context ends."""
        stop_process(self.pid)
        try:
            yield
        finally:
            os.kill(self.pid, signal.SIGCONT)

    def log(self) -> str:
        """The last lines that it said."""
        return "\n".join((self.root / "containerd.log").read_text().splitlines()[-30:])

    def shims(self) -> list[int]:
        """The processes that hold containers of this instance."""
        return list(self._shim_commands())

    def kill_forgotten_shims(self) -> None:
        """Kills the shims of containers that containerd does not know; what runs in these containers goes on.

        containerd 1.6 forgets the shim of a sandbox when the call of RunPodSandbox is cancelled while the shim makes
        the container (in 1 of 60 calls that are cancelled at any time): no client is told of it any more.
        """
        known = self._ctr("containers", "list", "-q").stdout.split()
        for pid, command in self._shim_commands().items():
            if command[command.index(b"-id") + 1] not in known:
                os.kill(pid, signal.SIGKILL)

    def _shim_commands(self) -> dict[int, list[bytes]]:
        commands, parents = {}, {}
        for place in Path("/proc").glob("[0-9]*"):
            try:
                words = (place / "cmdline").read_bytes().split(b"\0")
                if b"containerd-shim" not in words[0] or str(self.socket).encode() not in words:
                    continue
                parent = (place / "stat").read_text("utf-8", "replace").rpartition(")")[2].split()[1]
            except OSError:
                continue
            commands[int(place.name)], parents[int(place.name)] = words, int(parent)
        # A shim that starts runc is there twice for a moment.
        return {pid: words for pid, words in commands.items() if parents[pid] not in commands}

    def mounts(self) -> list[str]:
        """Where something is mounted for this instance."""
        lines = Path("/proc/self/mountinfo").read_text().splitlines()
        return [line.split()[4] for line in lines if line.split()[4].startswith(f"{self.root}/")]

    def load(self, image: str, user: str = "", command: tuple[str, ...] = ("sleep", "1000000")) -> None:
        """An image of busybox alone."""
        path = self.root / "image.tar"
        path.write_bytes(_archive(image, user, command))
        self._ctr("images", "import", str(path))
        path.unlink()

    def __enter__(self) -> Self:
        self._files()
        try:
            self.start()
            self.load(APP)
            self.load(USER, user="1234")
            self.load(PAUSE)
        except BaseException:
            self.close()
            raise
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        traceback: TracebackType | None,
    ) -> None:
        self.close()

    def close(self) -> None:
        """Nothing of it is left."""
        if self._process is not None and self._process.poll() is None:
            self._remove_all()
        self.stop()
        for pid in self.shims():
            os.kill(pid, signal.SIGKILL)
        for place in sorted(self.mounts(), reverse=True):
            subprocess.run(["umount", "-l", place], check=False)
        shutil.rmtree(self.root, ignore_errors=True)

    def _remove_all(self) -> None:
        """Tasks and containers, by containerd's own tool."""
        for task in self._ctr("tasks", "list", "-q", check=False).stdout.decode().split():
            self._ctr("tasks", "delete", "--force", task, check=False)
        for text in self._ctr("containers", "list", "-q", check=False).stdout.decode().split():
            self._ctr("containers", "delete", text, check=False)

    def _ctr(self, *words: str, check: bool = True) -> subprocess.CompletedProcess[bytes]:
        command = [_program("ctr"), "--address", str(self.socket), "--namespace", "k8s.io", *words]
        return subprocess.run(command, check=check, capture_output=True, timeout=30)

    def _files(self) -> None:
        plugins, conf = self.root / "cni/bin", self.root / "cni/conf"
        plugins.mkdir(parents=True)
        conf.mkdir(parents=True)
        for name in ("made-up", "loopback"):
            (plugins / name).write_text(_CNI)
            (plugins / name).chmod(0o755)
        (conf / "10-made-up.conflist").write_text(json.dumps(_CNI_CONFIG))
        text = _CONFIG.format(root=self.root, pause=self._pause, snapshotter=_snapshotter(self.root))
        (self.root / "config.toml").write_text(text)


def _program(name: str) -> str:
    text = shutil.which(name, path=PATH)
    assert text is not None, name
    return text


def _snapshotter(root: Path) -> str:
    """Overlays where the file system allows them; there is no overlay on an overlay."""
    process = subprocess.run(["stat", "-f", "-c", "%T", root], capture_output=True, text=True, check=True)
    return "native" if "overlay" in process.stdout else "overlayfs"


def _archive(image: str, user: str, command: tuple[str, ...]) -> bytes:
    """An image as `docker save` writes it: one layer with busybox under all of its names."""
    layer = io.BytesIO()
    with tarfile.open(fileobj=layer, mode="w") as tar:
        for name in ("bin", "tmp", "etc", "proc", "sys", "dev"):
            _add(tar, tarfile.DIRTYPE, name, 0o1777 if name == "tmp" else 0o755)
        _add(tar, tarfile.REGTYPE, "bin/busybox", 0o755, BUSYBOX.read_bytes())
        _add(
            tar,
            tarfile.REGTYPE,
            "etc/passwd",
            0o644,
            b"root:x:0:0::/:/bin/sh\nsomebody:x:1234:1234::/:/bin/sh\n",
        )
        applets = subprocess.run([BUSYBOX, "--list"], capture_output=True, text=True, check=True)
        for name in applets.stdout.split():
            if name != "busybox":
                _add(tar, tarfile.SYMTYPE, f"bin/{name}", 0o777, link="busybox")
    config: dict[str, Any] = {
        "architecture": "amd64",
        "os": "linux",
        "config": {"Cmd": list(command), "Env": ["PATH=/bin"], "User": user, "Labels": {"of": image}},
        "rootfs": {"type": "layers", "diff_ids": [f"sha256:{sha256(layer.getvalue()).hexdigest()}"]},
    }
    manifest = [{"Config": "config.json", "RepoTags": [image], "Layers": ["layer.tar"]}]
    archive = io.BytesIO()
    with tarfile.open(fileobj=archive, mode="w") as tar:
        _add(tar, tarfile.REGTYPE, "manifest.json", 0o644, json.dumps(manifest).encode())
        _add(tar, tarfile.REGTYPE, "config.json", 0o644, json.dumps(config).encode())
        _add(tar, tarfile.REGTYPE, "layer.tar", 0o644, layer.getvalue())
    return archive.getvalue()


def _add(
    tar: tarfile.TarFile, kind: bytes, name: str, mode: int, content: bytes = b"", *, link: str = ""
) -> None:
    member = tarfile.TarInfo(name)
    member.type, member.mode, member.linkname, member.size = kind, mode, link, len(content)
    tar.addfile(member, io.BytesIO(content) if kind == tarfile.REGTYPE else None)
