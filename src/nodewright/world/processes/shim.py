"""The parent of one container's process: holds its log, waits for its end and writes it down.

It outlives the agent, and there is one for each container, so it imports next to nothing: the standard library's parts
that are built in. Its directory has `lock` (held while it lives), `ctl` (a FIFO that takes `TERM`, `KILL`, a signal's
number and `REOPEN`, a line each), `started` and `exit.json`, each there whole or not at all.
"""

# The public module would import enum, which is larger than all that is here.
import _signal as signal  # type: ignore[import-not-found] # the types know its public name only
import errno
import marshal
import os
import select
import sys
import time

if __package__:
    from nodewright.world.processes.killing import kill_all
    from nodewright.world.processes.logfile import Log
else:
    # How the runtime starts it: without its package, which would bring more.
    from killing import kill_all  # type: ignore[import-not-found,no-redef] # beside this file
    from logfile import Log  # type: ignore[import-not-found,no-redef] # likewise

TYPE_CHECKING = False
if TYPE_CHECKING:
    # Importing typing would take longer than all the rest.
    from collections.abc import Mapping
    from typing import Any, NoReturn

_SUBREAPER = 36  # PR_SET_CHILD_SUBREAPER
_MESSAGE_LIMIT = 4096
_DRAIN_S = 0.5
_KILL_LIMIT_S = 5.0
_RETRY_S = 0.2
_START_FAILED = 128
_LOST = 137


def main(directory: str) -> None:
    """Run to its end what comes on the standard input."""
    import fcntl  # noqa: PLC0415 - not for `execute`, which runs for every probe

    spec = _spec()
    # Signals from the agent's terminal are not meant for us.
    os.setsid()
    os.chdir(directory)
    lock = os.open("lock", os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o600)
    try:
        fcntl.lockf(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except OSError:
        return
    # Whoever removes or ends a container that does not run does so under the lock.
    if os.path.exists("created.json") and not os.path.exists("started") and not os.path.exists("exit.json"):
        _Shim(spec).run()


class _Shim:
    """One container, from its start to its end."""

    def __init__(self, spec: "dict[str, Any]") -> None:
        self.spec = spec
        self.log = Log(spec["log"])
        self.child = 0
        self.notes: list[str] = []
        self.ended: int | None = None
        self.finished_ns = 0
        self.oom_before = 0
        self.is_dismissed = False
        """Whoever asked it to end what has ended already will not wait for its last words."""

    def run(self) -> None:
        for each in (signal.SIGTERM, signal.SIGINT, signal.SIGHUP, signal.SIGPIPE):
            signal.signal(each, signal.SIG_IGN)
        wake, waker = os.pipe()
        os.set_blocking(wake, False)
        os.set_blocking(waker, False)
        signal.set_wakeup_fd(waker)
        signal.signal(signal.SIGCHLD, lambda *_: None)
        if not os.path.exists("ctl"):
            os.mkfifo("ctl", 0o600)
        control = os.open("ctl", os.O_RDWR | os.O_NONBLOCK | os.O_CLOEXEC)
        self.oom_before = _oom_kills(self.spec)
        streams, failure = self._spawn()
        if failure is not None:
            document = {"code": _START_FAILED, "error": failure, "finished_ns": time.time_ns()}
            if not _is_written("exit.json", document):
                failure += "; and that cannot be written down"
            _answer(f"error {failure}")
            return
        _answer("started")
        _adopt_orphans()
        self._serve(wake, control, streams)
        self._finish(control)

    def _spawn(self) -> "tuple[dict[int, str], str | None]":
        """The child; the streams that it writes to, and why it could not be run.

        That it is started is written down before it is: it waits for that in its groups.
        """
        (out_r, out_w), (err_r, err_w), (fail_r, fail_w), (go_r, go_w) = (os.pipe() for _ in range(4))
        self.child = os.fork()
        if self.child == 0:
            for each in (out_r, err_r, fail_r, go_w):
                os.close(each)
            _become(self.spec, (out_w, err_w), fail_w, go_r)
        for each in (out_w, err_w, fail_w, go_r):
            os.close(each)
        error = self._said(fail_r)
        if error is None:
            error = self._recorded()
        if error is None:
            os.write(go_w, b"!")
        os.close(go_w)
        error = self._said(fail_r) or error
        os.close(fail_r)
        if error is not None:
            os.waitpid(self.child, 0)
            return {}, error
        return {out_r: "stdout", err_r: "stderr"}, None

    def _said(self, fail: int) -> str | None:
        """What the child could not do, once it is ready or gone."""
        said = b""
        while chunk := os.read(fail, 4096):
            said += chunk
            if said.endswith(b"ready\n"):
                break
        lines = said.decode("utf-8", "replace").splitlines()
        self.notes += [line[5:] for line in lines if line.startswith("note ")]
        return next((line[6:] for line in lines if line.startswith("error ")), None)

    def _recorded(self) -> str | None:
        document = {
            "pid": self.child,
            "started_ns": time.time_ns(),
            "notes": "; ".join(self.notes),
        }
        try:
            _write("started", document, synced=False)
        except OSError as error:
            return f"its start cannot be written down: {os.strerror(error.errno or 0)}"
        return None

    def _serve(self, wake: int, control: int, streams: dict[int, str]) -> None:
        """Logs, commands, and the end of the child; then what is left in the pipes."""
        deadline = None
        while streams or self.ended is None:
            left = None if deadline is None else max(0.0, deadline - time.monotonic())
            ready, _, _ = select.select([wake, control, *streams], [], [], left)
            for each in [one for one in ready if one in streams]:
                chunk = os.read(each, 65536)
                self.log.take(streams[each], chunk)
                if not chunk:
                    del streams[each]
                    os.close(each)
            if wake in ready:
                os.read(wake, 4096)
                self._reap()
            if control in ready:
                self._commands(control)
            if self.ended is not None and deadline is None:
                # Whoever it left behind ends with it, as in a PID namespace.
                kill_all(self.spec["directories"], _KILL_LIMIT_S)
                deadline = time.monotonic() + _DRAIN_S
            if deadline is not None and time.monotonic() >= deadline:
                return

    def _reap(self) -> None:
        while True:
            try:
                pid, status = os.waitpid(-1, os.WNOHANG)
            except ChildProcessError:
                return
            if pid == 0:
                return
            if pid == self.child:
                self.ended = os.waitstatus_to_exitcode(status)
                self.finished_ns = time.time_ns()

    def _commands(self, control: int) -> None:
        # As much as there can be in the FIFO: no word is torn.
        for word in os.read(control, 65536).decode("ascii", "replace").split():
            if word == "REOPEN":
                self.log.reopen()
            elif self.ended is not None:
                self.is_dismissed = True
            elif word == "KILL":
                # Who is made to end has no last words that are worth waiting for.
                self.is_dismissed = True
                kill_all(self.spec["directories"], _KILL_LIMIT_S)
            elif word == "TERM":
                os.kill(self.child, signal.SIGTERM)
            elif word.isdigit():
                os.kill(self.child, int(word))

    def _finish(self, control: int) -> None:
        """Write down how it ended. Where the disk is full that takes until it is not, or until nobody wants to know."""
        self.log.close()
        code = _LOST if self.ended is None else self.ended
        document = {
            "code": 128 - code if code < 0 else code,
            "oom_killed": int(_oom_kills(self.spec) > self.oom_before),
            "finished_ns": self.finished_ns,
            "message": _message(self.spec),
        }
        while not _is_written("exit.json", document):
            if self.is_dismissed or not os.path.exists("lock"):
                break
            if select.select([control], [], [], _RETRY_S)[0]:
                self._commands(control)
        self._reap()


def execute() -> "NoReturn":
    """Become another command in a container that runs."""
    spec = _spec()
    try:
        os.setsid()
        _enter(spec)
        _adjust_score(spec)
        _be(spec)
    except OSError as error:
        os.write(2, f"{_what(spec, error)}: {error.strerror}\n".encode())
    except BaseException as error:  # noqa: BLE001 - whatever it is, nothing else would tell of it
        os.write(2, f"{error}\n".encode())
    os._exit(126)


def _become(spec: "dict[str, Any]", streams: tuple[int, int], fail: int, go: int) -> "NoReturn":
    """In the child: enter the groups, wait for the word, become the command; never returns."""
    try:
        os.setsid()
        _enter(spec)
        error = _adjust_score(spec)
        if error:
            os.write(fail, f"note {error}\n".encode())
        os.dup2(os.open("/dev/null", os.O_RDONLY), 0)
        for number, each in enumerate(streams, 1):
            os.dup2(each, number)
        os.write(fail, b"ready\n")
        if os.read(go, 1):
            _be(spec)
    except OSError as error:
        os.write(fail, f"error {_what(spec, error)}: {error.strerror}\n".encode())
    except BaseException as error:  # noqa: BLE001 - whatever it is, nothing else would tell of it
        os.write(fail, f"error {error}\n".encode())
    finally:
        os._exit(_START_FAILED)


def _enter(spec: "dict[str, Any]") -> None:
    for door in spec["doors"]:
        with open(door, "w", encoding="ascii") as file:
            file.write("0")
    if os.getpriority(os.PRIO_PROCESS, 0) < 0:
        # That the agent is in a hurry is no matter of its containers.
        os.setpriority(os.PRIO_PROCESS, 0, 0)


def _adjust_score(spec: "dict[str, Any]") -> str:
    """Why it could not be adjusted: where the machine forbids to lower it, the container runs nevertheless."""
    score = spec["oom_score_adj"]
    if score is not None:
        try:
            with open("/proc/self/oom_score_adj", "w", encoding="ascii") as file:
                file.write(str(score))
        except OSError as error:
            return f"oom_score_adj {score}: {error.strerror}"
    return ""


def _be(spec: "dict[str, Any]") -> None:
    """Whose it is, where it stands, and the command itself; returns only by an exception."""
    if spec["keeps"] is not None or spec["gains_nothing"]:
        _limit(spec)
    if spec["groups"] is not None:
        os.setgroups(spec["groups"])
    if spec["gid"] is not None:
        os.setgid(spec["gid"])
    if spec["uid"] is not None:
        os.setuid(spec["uid"])
    os.chdir(spec["cwd"] or "/")
    for each in range(1, signal.NSIG):
        try:
            signal.signal(each, signal.SIG_DFL)
        except (OSError, ValueError):
            continue
    signal.pthread_sigmask(signal.SIG_SETMASK, ())
    _exec(spec["argv"], spec["env"])


def _limit(spec: "dict[str, Any]") -> None:
    """It may do less than we, from the command on."""
    # Few containers ask for it, and all would wait for what it imports.
    if __package__:
        from nodewright.world.processes import powers  # noqa: PLC0415 - likewise slow
    else:
        import powers  # type: ignore[import-not-found,no-redef] # noqa: PLC0415 - beside this file
    if spec["keeps"] is not None:
        powers.keep(set(spec["keeps"]))
    if spec["gains_nothing"]:
        powers.gain_nothing()


def _exec(argv: list[str], env: dict[str, str]) -> None:
    """As os.execvpe, which would import more than all of this."""
    denied = None
    if "/" in argv[0]:
        os.execve(argv[0], argv, env)
    for directory in env.get("PATH", os.defpath).split(":"):
        try:
            os.execve(f"{directory or '.'}/{argv[0]}", argv, env)
        except (FileNotFoundError, NotADirectoryError):
            continue
        except PermissionError as error:
            denied = error
    raise denied or FileNotFoundError(errno.ENOENT, "executable file not found in $PATH", argv[0])


def _what(spec: "dict[str, Any]", error: OSError) -> str:
    """What an error is about: the file that it names, else the command."""
    return str(error.filename or spec["argv"][0])


def _spec() -> "dict[str, Any]":
    with open(0, "rb", closefd=False) as file:
        spec: dict[str, Any] = marshal.loads(file.read())  # noqa: S302 - from the runtime that started us
    return spec


def _adopt_orphans() -> None:
    """Children of the container's process that outlive it become ours, so that they are reaped."""
    import ctypes  # noqa: PLC0415 - nobody has to wait for this

    ctypes.CDLL(None, use_errno=True).prctl(_SUBREAPER, 1, 0, 0, 0)


def _oom_kills(spec: "dict[str, Any]") -> int:
    """How many processes of the group the kernel has killed for want of memory."""
    for place in spec["oom_files"]:
        try:
            with open(place, encoding="ascii") as file:
                for line in file:
                    words = line.split()
                    if words and words[0] == "oom_kill":
                        return int(words[1])
        except OSError:
            continue
    return 0


def _message(spec: "dict[str, Any]") -> str:
    """What the container left behind as its last words."""
    try:
        with open(spec["termination_log"], encoding="utf-8", errors="replace") as file:
            return file.read(_MESSAGE_LIMIT)
    except OSError:
        return ""


def _write(name: str, document: "Mapping[str, object]", *, synced: bool = True) -> None:
    from _json import encode_basestring_ascii as quoted  # noqa: PLC0415 - json would import re

    pairs = (
        f"{quoted(key)}: {quoted(value) if isinstance(value, str) else value}"
        for key, value in document.items()
    )
    temporary = f".{name}.tmp"
    with open(temporary, "w", encoding="ascii") as file:
        file.write("{" + ", ".join(pairs) + "}")
        file.flush()
        if synced:
            os.fsync(file.fileno())
    os.rename(temporary, name)


def _is_written(name: str, document: "Mapping[str, object]") -> bool:
    try:
        _write(name, document)
    except OSError:
        return False
    return True


def _answer(text: str) -> None:
    """Tell whoever started us; it may be gone."""
    try:
        os.write(1, f"{text}\n".encode())
    except OSError:
        pass
    null = os.open("/dev/null", os.O_RDWR)
    for each in (0, 1, 2):
        os.dup2(null, each)
    os.close(null)


if __name__ == "__main__":
    sys.exit("it is started by the runtime")
