"""The parent process of one container: writes its log, waits for its end and records it.

It outlives the agent, and there is one for each container, so it imports only builtin parts of the standard library.
Its directory has `lock` (held while it runs), `ctl` (a FIFO that takes `TERM`, `KILL`, a signal's number and
`REOPEN`, a line each), `started` and `exit.json`, each written completely or not at all.
"""

# The public module would import enum, which is larger than this whole module.
import _signal as signal  # type: ignore[import-not-found] # the types know its public name only
import errno
import marshal
import os
import select
import sys
import time

if __package__:
    from nodewright.agent.host.process_kill import kill_all
    from nodewright.agent.runtimes.processes.logfile import ContainerLogWriter
    from nodewright.agent.runtimes.processes.shim_files import (
        close_inherited_descriptors,
        oom_kills,
        termination_message,
        try_write_record,
        write_record,
    )
else:
    # The runtime starts it without its package, which would import more.
    from logfile import ContainerLogWriter  # type: ignore[import-not-found,no-redef] # beside this file
    from process_kill import kill_all  # type: ignore[import-not-found,no-redef] # found by `children.py`
    from shim_files import (  # type: ignore[import-not-found,no-redef] # beside this file
        close_inherited_descriptors,
        oom_kills,
        termination_message,
        try_write_record,
        write_record,
    )

TYPE_CHECKING = False
if TYPE_CHECKING:
    # Importing typing would take longer than everything else here.
    from typing import Any, NoReturn

STDIN_FD = 3
"""The standard input of a command, while that of the shim has the spec."""
_PR_SET_CHILD_SUBREAPER, _TIOCSCTTY = 36, 0x540E
_DRAIN_S = 0.5
_KILL_LIMIT_S = 5.0
_RETRY_S = 0.2
_START_FAILED = 128
_LOST_CODE = 137


def main(directory: str) -> None:
    """Runs the container that the standard input describes, to its end."""
    import fcntl  # noqa: PLC0415 - not for `execute`, which runs for every probe

    close_inherited_descriptors()
    spec = _read_spec()
    # Signals from the agent's terminal must not reach the shim.
    os.setsid()
    os.chdir(directory)
    lock = os.open("lock", os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o600)
    try:
        fcntl.lockf(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except OSError:
        return
    # The runtime removes or ends a container that does not run under the same lock.
    if os.path.exists("created.json") and not os.path.exists("started") and not os.path.exists("exit.json"):
        _Shim(spec).run()


class _Shim:
    """One container, from its start to its end."""

    def __init__(self, spec: "dict[str, Any]") -> None:
        self.spec = spec
        self.log = ContainerLogWriter(spec["log"])
        self.child = 0
        self.notes: list[str] = []
        self.exit_code: int | None = None
        self.finished_ns = 0
        self.oom_before = 0
        self.is_write_optional = False
        """Whether the exit record may be given up: a stop was requested after the end, or the container was killed."""

    def run(self) -> None:
        for fd in (signal.SIGTERM, signal.SIGINT, signal.SIGHUP, signal.SIGPIPE):
            signal.signal(fd, signal.SIG_IGN)
        wake_fd, waker_fd = os.pipe()
        os.set_blocking(wake_fd, False)
        os.set_blocking(waker_fd, False)
        signal.set_wakeup_fd(waker_fd)
        signal.signal(signal.SIGCHLD, lambda *_: None)
        if not os.path.exists("ctl"):
            os.mkfifo("ctl", 0o600)
        control_fd = os.open("ctl", os.O_RDWR | os.O_NONBLOCK | os.O_CLOEXEC)
        self.oom_before = oom_kills(self.spec["oom_files"])
        streams, failure = self._spawn()
        if failure is not None:
            document = {"code": _START_FAILED, "error": failure, "finished_ns": time.time_ns()}
            if not try_write_record("exit.json", document):
                failure += "; and the failure cannot be recorded"
            _answer_runtime(f"error {failure}")
            return
        _answer_runtime("started")
        _adopt_orphans()
        self._serve(wake_fd, control_fd, streams)
        self._finish(control_fd)

    def _spawn(self) -> "tuple[dict[int, str], str | None]":
        """Starts the child; the streams that it writes to, and why it could not be run.

        The start is recorded before the command runs: the child waits for that in its cgroups.
        """
        (out_r, out_w), (err_r, err_w), (fail_r, fail_w), (go_r, go_w) = (os.pipe() for _ in range(4))
        self.child = os.fork()
        if self.child == 0:
            for fd in (out_r, err_r, fail_r, go_w):
                os.close(fd)
            _run_child(self.spec, (out_w, err_w), fail_w, go_r)
        for fd in (out_w, err_w, fail_w, go_r):
            os.close(fd)
        error = self._read_child_status(fail_r)
        if error is None:
            error = self._record_start()
        if error is None:
            os.write(go_w, b"!")
        os.close(go_w)
        error = self._read_child_status(fail_r) or error
        os.close(fail_r)
        if error is not None:
            os.waitpid(self.child, 0)
            return {}, error
        return {out_r: "stdout", err_r: "stderr"}, None

    def _read_child_status(self, fail_fd: int) -> str | None:
        """The child's error, once it is ready or has ended."""
        text = b""
        while chunk := os.read(fail_fd, 4096):
            text += chunk
            if text.endswith(b"ready\n"):
                break
        lines = text.decode("utf-8", "replace").splitlines()
        self.notes += [line[5:] for line in lines if line.startswith("note ")]
        return next((line[6:] for line in lines if line.startswith("error ")), None)

    def _record_start(self) -> str | None:
        document = {
            "pid": self.child,
            "started_ns": time.time_ns(),
            "notes": "; ".join(self.notes),
        }
        try:
            write_record("started", document, synced=False)
        except OSError as error:
            return f"the start cannot be recorded: {os.strerror(error.errno or 0)}"
        return None

    def _serve(self, wake_fd: int, control_fd: int, streams: dict[int, str]) -> None:
        """Handles output, commands and the end of the child; then what is left in the pipes."""
        deadline = None
        while streams or self.exit_code is None:
            left = None if deadline is None else max(0.0, deadline - time.monotonic())
            ready, _, _ = select.select([wake_fd, control_fd, *streams], [], [], left)
            for fd in [fd for fd in ready if fd in streams]:
                chunk = os.read(fd, 65536)
                self.log.append(streams[fd], chunk)
                if not chunk:
                    del streams[fd]
                    os.close(fd)
            if wake_fd in ready:
                os.read(wake_fd, 4096)
                self._reap()
            if control_fd in ready:
                self._run_commands(control_fd)
            if self.exit_code is not None and deadline is None:
                # Processes that it left behind end with it, as in a PID namespace.
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
                self.exit_code = os.waitstatus_to_exitcode(status)
                self.finished_ns = time.time_ns()

    def _run_commands(self, control_fd: int) -> None:
        # Reads as much as a FIFO can hold, so no command is cut.
        for word in os.read(control_fd, 65536).decode("ascii", "replace").split():
            if word == "REOPEN":
                self.log.reopen()
            elif self.exit_code is not None:
                self.is_write_optional = True
            elif word == "KILL":
                # The termination message of a killed container is not worth a wait.
                self.is_write_optional = True
                kill_all(self.spec["directories"], _KILL_LIMIT_S)
            elif word == "TERM":
                os.kill(self.child, signal.SIGTERM)
            elif word.isdigit():
                os.kill(self.child, int(word))

    def _finish(self, control_fd: int) -> None:
        """Writes the exit record; on a full disk, repeats until it succeeds or is no longer needed."""
        self.log.close()
        code = _LOST_CODE if self.exit_code is None else self.exit_code
        document = {
            "code": 128 - code if code < 0 else code,
            "oom_killed": int(oom_kills(self.spec["oom_files"]) > self.oom_before),
            "finished_ns": self.finished_ns,
            "message": termination_message(self.spec["termination_log"]),
        }
        while not try_write_record("exit.json", document):
            if self.is_write_optional or not os.path.exists("lock"):
                break
            if select.select([control_fd], [], [], _RETRY_S)[0]:
                self._run_commands(control_fd)
        self._reap()


def execute() -> "NoReturn":
    """Replaces this process by another command in a running container."""
    spec = _read_spec()
    if spec.get("has_stdin"):
        os.dup2(STDIN_FD, 0)
    close_inherited_descriptors()
    try:
        os.setsid()
        if spec.get("is_terminal"):
            _take_terminal()
        _enter_cgroups(spec)
        _adjust_score(spec)
        _exec_command(spec)
    except OSError as error:
        os.write(2, f"{_error_subject(spec, error)}: {error.strerror}\n".encode())
    except BaseException as error:  # noqa: BLE001 - whatever it is, nothing else would report it
        os.write(2, f"{error}\n".encode())
    os._exit(126)


def _take_terminal() -> None:
    """Makes the terminal at the standard streams that of the session, which receives its signals."""
    import fcntl  # noqa: PLC0415 - few commands have a terminal

    fcntl.ioctl(0, _TIOCSCTTY, 0)


def _run_child(spec: "dict[str, Any]", streams: tuple[int, int], fail_fd: int, go_fd: int) -> "NoReturn":
    """In the child: enters the cgroups, waits for the runtime's record, and executes the command; never returns."""
    try:
        os.setsid()
        _enter_cgroups(spec)
        error = _adjust_score(spec)
        if error:
            os.write(fail_fd, f"note {error}\n".encode())
        os.dup2(os.open("/dev/null", os.O_RDONLY), 0)
        for number, fd in enumerate(streams, 1):
            os.dup2(fd, number)
        os.write(fail_fd, b"ready\n")
        if os.read(go_fd, 1):
            _exec_command(spec)
    except OSError as error:
        os.write(fail_fd, f"error {_error_subject(spec, error)}: {error.strerror}\n".encode())
    except BaseException as error:  # noqa: BLE001 - whatever it is, nothing else would report it
        os.write(fail_fd, f"error {error}\n".encode())
    finally:
        os._exit(_START_FAILED)


def _enter_cgroups(spec: "dict[str, Any]") -> None:
    for procs_file in spec["procs_files"]:
        with open(procs_file, "w", encoding="ascii") as file:
            file.write("0")
    if os.getpriority(os.PRIO_PROCESS, 0) < 0:
        # The agent's own nice value is not for containers.
        os.setpriority(os.PRIO_PROCESS, 0, 0)


def _adjust_score(spec: "dict[str, Any]") -> str:
    """Sets oom_score_adj; why it failed. Where the machine forbids to lower it, the container runs nevertheless."""
    score = spec["oom_score_adj"]
    if score is not None:
        try:
            with open("/proc/self/oom_score_adj", "w", encoding="ascii") as file:
                file.write(str(score))
        except OSError as error:
            return f"oom_score_adj {score}: {error.strerror}"
    return ""


def _exec_command(spec: "dict[str, Any]") -> None:
    """Sets user, groups, working directory and signals, and executes the command; returns only by an exception."""
    if spec["capabilities"] is not None or spec["no_new_privs"]:
        _limit_privileges(spec)
    if spec["groups"] is not None:
        os.setgroups(spec["groups"])
    if spec["gid"] is not None:
        os.setgid(spec["gid"])
    if spec["uid"] is not None:
        os.setuid(spec["uid"])
    os.chdir(spec["cwd"] or "/")
    for fd in range(1, signal.NSIG):
        try:
            signal.signal(fd, signal.SIG_DFL)
        except (OSError, ValueError):
            continue
    signal.pthread_sigmask(signal.SIG_SETMASK, ())
    _exec_in_path(spec["argv"], spec["env"])


def _limit_privileges(spec: "dict[str, Any]") -> None:
    """Limits the privileges of the command."""
    # Few containers need this import, and all would wait for it.
    if __package__:
        from nodewright.agent.runtimes.processes import capabilities  # noqa: PLC0415 - likewise slow
    else:
        import capabilities  # type: ignore[import-not-found,no-redef] # noqa: PLC0415 - beside this file
    if spec["capabilities"] is not None:
        capabilities.limit_capabilities(set(spec["capabilities"]))
    if spec["no_new_privs"]:
        capabilities.set_no_new_privs()


def _exec_in_path(argv: list[str], env: dict[str, str]) -> None:
    """As os.execvpe, which would import more than this whole module."""
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


def _error_subject(spec: "dict[str, Any]", error: OSError) -> str:
    """What an error is about: the file that it names, else the command."""
    return str(error.filename or spec["argv"][0])


def _read_spec() -> "dict[str, Any]":
    with open(0, "rb", closefd=False) as file:
        spec: dict[str, Any] = marshal.loads(file.read())  # noqa: S302 - from the runtime that started us
    return spec


def _adopt_orphans() -> None:
    """Makes orphans of the container's process children of the shim, so that they are reaped."""
    import ctypes  # noqa: PLC0415 - after the start, so that no container waits for it

    ctypes.CDLL(None, use_errno=True).prctl(_PR_SET_CHILD_SUBREAPER, 1, 0, 0, 0)


def _answer_runtime(text: str) -> None:
    """Answers the runtime, which may be gone; then closes the standard streams."""
    try:
        os.write(1, f"{text}\n".encode())
    except OSError:
        pass
    null = os.open("/dev/null", os.O_RDWR)
    for fd in (0, 1, 2):
        os.dup2(null, fd)
    os.close(null)


if __name__ == "__main__":
    sys.exit("started by the process runtime only")
