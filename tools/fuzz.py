"""Broken input for everything that reads what people bring: `python -m tools fuzz` or `make fuzz`.

Good input is damaged at random, from a seed: its bytes, or the values in it; or, with `--numbers`, each of its numbers is
replaced by each extreme. A command may answer or refuse with a message; an exception, and more time or memory than its
bounds, is a finding: it is printed with its seed and number.
"""

import argparse
import contextlib
import gc
import io
import json
import math
import os
import random
import resource
import shutil
import signal
import sys
import tempfile
import time
import traceback
import zlib
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import cache
from pathlib import Path
from typing import NamedTuple
from unittest import mock

from nodewright.cli.app import run
from nodewright.documents.files.process_tuning import COMMAND_THRESHOLDS
from nodewright.documents.output import terminal
from nodewright.documents.profiles.catalogue import recorded_machines
from nodewright.model.errors import HostError, InputError
from nodewright.model.values.idset import CPUSet, IdSetError
from nodewright.model.values.quantity import Quantity, QuantityError
from tools.agent_figures import Totals, Trial
from tools.fuzz_commands import cluster, command_targets, kubeconfig
from tools.fuzz_mutations import damaged, smaller, with_extremes
from tools.fuzz_requests import request_targets
from tools.fuzz_server import AnsweringServer, server_of_process
from tools.fuzz_targets import CONFIGURATION, LSCPU, POD, PROFILE, USAGE, cluster_targets, file_targets
from tools.source import ROOT


class Bounds(NamedTuple):
    """What one input may need."""

    cpu_s: float
    more_bytes: int
    """Beside what the process has already."""


DAMAGED = Bounds(cpu_s=20, more_bytes=1 << 30)
"""For input that may be large."""
NUMBERS = Bounds(cpu_s=2, more_bytes=200 << 20)
"""For input that is as small as the samples: what a number says must not decide what it costs."""

Reader = Callable[[bytes], object]


@dataclass(frozen=True, slots=True)
class Target:
    """Something that reads, the errors it may raise, and good input for it."""

    read: Reader
    samples: tuple[bytes, ...]
    refusals: tuple[type[Exception], ...] = ()
    line: str = ""
    """The command line, if it is one."""


@dataclass(frozen=True, slots=True)
class Finding:
    """Input that a reader neither took nor refused."""

    target: str
    number: int
    """The how-manieth input of the seed it was."""
    content: bytes
    trouble: str


@cache
def targets() -> Mapping[str, Target]:
    """Everything that is tried, by name."""
    pods, profiles = (POD, *_files("examples/**/*.yaml")), (PROFILE, *_files("examples/nodes/*.yaml"))
    machine = json.dumps(recorded_machines()["1s-2n-4c-smt2"]).encode()
    return {
        **{
            name: Target(reader_of(line), samples, line=line)
            for name, (line, samples) in file_targets().items()
        },
        **{line: Target(reader_of(line), samples, line=line) for line, samples in command_targets().items()},
        **{
            name: Target(read, samples, (InputError, HostError))
            for name, (read, samples) in cluster_targets().items()
        },
        **{name: Target(read, samples) for name, (read, samples) in request_targets().items()},
        "quantity": Target(
            lambda content: Quantity.parse(_text(content)),
            (b"1.5Gi", b"250m", b"-1e3", b"+.5E", b"100000000000000000000"),
            (QuantityError,),
        ),
        "cpu set": Target(
            lambda content: CPUSet.parse(_text(content)), (b"0-3,7,9-11", b"", b"0,2,4,6"), (IdSetError,)
        ),
        "node show": Target(reader_of("node show --node FILE"), profiles),
        "kubelet configuration": Target(
            reader_of("node capture --kubelet-config FILE --lscpu OTHER", LSCPU), (CONFIGURATION,)
        ),
        "lscpu": Target(reader_of("node capture --lscpu FILE"), (LSCPU,)),
        "machine info": Target(reader_of("node capture --machine-info FILE"), (machine,)),
        "vectors": Target(
            reader_of("verify --show 1 FILE"),
            (b'{"id":"a","family":"quantity","input":{"op":"parse","text":"1"}}\n',),
        ),
        "requests": Target(reader_of("requests --memory-capacity 8Gi -f FILE"), pods),
        "pods to admit": Target(reader_of("admit --node laptop-i7-1370p -f FILE"), pods),
        "claims": Target(
            reader_of("explain --node dgx-h100 -f FILE -o json"),
            (
                b"\n---\n".join(
                    _files("examples/claims/cluster.yaml") + _files("examples/claims/train-4.yaml")
                ),
            ),
        ),
        "lint of claims": Target(reader_of("lint FILE"), _files("examples/claims/*.yaml")),
        "scenarios": Target(reader_of("replay FILE -o json"), _files("examples/scenarios/*.yaml")),
        "scenarios on another node": Target(
            reader_of("replay FILE --node vm-4"), _files("examples/scenarios/*.yaml")
        ),
        "usage": Target(
            reader_of("evict --node examples/eviction/node.yaml --usage FILE -o json"),
            ((ROOT / "examples/eviction/summary.json").read_bytes(), USAGE),
        ),
        "usage in columns": Target(
            reader_of("evict --node examples/eviction/node.yaml --usage TABLE"),
            (
                b"pod,container,memory,rootfs,logs,inodes,processes\nshop/web,web,2Gi,1Gi,20Mi,500,64\nshop/db,,5Gi,,,,9\n",
            ),
        ),
        "history in columns": Target(
            reader_of("lend --node examples/lend/node.yaml --usage TABLE"),
            (
                b"time,pod,container,cpu,memory\n0,shop/db,db,500m,3Gi\n60,shop/db,db,1,3Gi\n120,shop/db,db,1,3Gi\n",
            ),
        ),
        "history of Prometheus": Target(
            reader_of("lend --node examples/lend/node.yaml --usage FILE -o json"),
            (
                (
                    b'{"data":{"resultType":"matrix","result":[{"metric":{"__name__":"container_cpu_usage_seconds_total",'
                    b'"namespace":"shop","pod":"db","container":"db"},"values":[[0,"0"],[60,"30"],[120,"20.5"],[180,"50"]]}]}}'
                ),
            ),
        ),
        "node to admit to": Target(reader_of("admit --node FILE -f OTHER", POD), profiles),
        "configuration to admit by": Target(
            reader_of("admit --node vm-4 --kubelet-config FILE -f OTHER", POD), (CONFIGURATION,)
        ),
    }


def _text(content: bytes) -> str:
    return content.decode("utf-8", "surrogateescape")


def _files(pattern: str) -> tuple[bytes, ...]:
    return tuple(path.read_bytes() for path in sorted(ROOT.glob(pattern)))


def inputs(name: str, seed: int) -> Iterator[bytes]:
    """Damaged input for the target without end, the same for the same seed."""
    chance = random.Random(f"{name} {seed}")
    samples = targets()[name].samples
    while True:
        yield damaged(samples, chance)


def numbers(name: str, first: int = 0, step: int = 1) -> Iterator[bytes]:
    """The target's samples with each of their numbers replaced by each extreme; of these every `step`th."""
    return with_extremes(targets()[name].samples, first, step)


def tried(name: str, number: int, content: bytes, bounds: Bounds = DAMAGED) -> Finding | None:
    """What is wrong with how the target reads the input; None: nothing."""
    trouble = _tried(targets()[name], content, bounds)
    return Finding(name, number, content, trouble) if trouble else None


def _tried(target: Target, content: bytes, bounds: Bounds = DAMAGED) -> str:
    began_s = time.process_time()
    try:
        with _limited_time(bounds.cpu_s):
            target.read(content)
    except target.refusals:
        pass
    except Exception as error:  # noqa: BLE001 - anything else is what we look for
        place = traceback.extract_tb(error.__traceback__)[-1]
        where = f"{Path(place.filename).name}:{place.lineno}"
        return f"{type(error).__name__} at {where}: {error}"[:300]
    took_s = time.process_time() - began_s
    return f"took {took_s:.1f} s" if took_s > bounds.cpu_s else ""


def _kind(trouble: str) -> str:
    """The exception and its place, without its text."""
    return trouble.partition(": ")[0]


def _minimal(finding: Finding) -> bytes:
    """Less input with the same kind of finding, in the same place."""
    kind = _kind(finding.trouble)

    def still_fails(content: bytes) -> bool:
        # Which of the alternatives of a line is taken depends on the content.
        line = chosen_line(targets()[finding.target].line, finding.content)
        other = _tried(Target(reader_of(line), ()) if line else targets()[finding.target], content)
        return _kind(other) == kind

    if not finding.trouble.partition(" ")[0].endswith("Error") or "TimeoutError" in kind:
        return finding.content
    return smaller(finding.content, still_fails)


@contextlib.contextmanager
def _limited_time(cpu_s: float) -> Iterator[None]:
    """Within this context, TimeoutError is raised after this CPU time."""

    def stop(_number: int, _frame: object) -> None:
        raise TimeoutError(f"more than {cpu_s:.0f} s")

    previous = signal.signal(signal.SIGPROF, stop)
    signal.setitimer(signal.ITIMER_PROF, cpu_s)
    try:
        yield
    finally:
        signal.setitimer(signal.ITIMER_PROF, 0)
        signal.signal(signal.SIGPROF, previous)


@dataclass(frozen=True, slots=True)
class Plan:
    """How a target is tried."""

    seconds: float
    count: int
    """At most so many inputs; 0: as many as there is time for."""
    bounds: Bounds = DAMAGED

    def inputs(self, name: str, seed: int) -> Iterator[bytes]:
        """Every extreme number, or damaged input without end."""
        return numbers(name) if self.bounds is NUMBERS else inputs(name, seed)


def tried_for_long(name: str, seed: int, plan: Plan) -> Trial:
    """Tries a target in a process of its own with bounded memory, and prints the findings."""
    reading, writing = os.pipe()
    pid = os.fork()
    if pid == 0:
        code = 1
        try:
            used_bytes = int(Path("/proc/self/statm").read_text("ascii").split()[0]) * resource.getpagesize()
            most_bytes = used_bytes + plan.bounds.more_bytes
            resource.setrlimit(resource.RLIMIT_AS, (most_bytes, most_bytes))
            os.write(writing, json.dumps(_tried_inputs(name, seed, plan)).encode())
            code = 0
        finally:
            sys.stdout.flush()
            os._exit(code)
    os.close(writing)
    with open(reading, "rb") as result:  # noqa: PTH123 - a descriptor
        content = result.read()
    if os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1]) != 0:
        print(f"{name}, seed {seed}: the process ended", flush=True)
        return Trial(0, 1)
    return Trial(*json.loads(content))


def _tried_inputs(name: str, seed: int, plan: Plan) -> Trial:
    findings: set[str] = set()
    end_s, number = time.monotonic() + plan.seconds, 0
    for number, content in enumerate(plan.inputs(name, seed), 1):
        finding = tried(name, number, content, plan.bounds)
        if finding and _kind(finding.trouble) not in findings:
            findings.add(_kind(finding.trouble))
            line = chosen_line(targets()[name].line, content)
            print(f"{name}, seed {seed}, input {number}: {finding.trouble}\n  {line}", flush=True)
            print(f"  {_minimal(finding)[:2000]!r}", flush=True)
        if time.monotonic() > end_s or number == plan.count:
            break
    print(f"{name}: {number} inputs, seed {seed}, {len(findings)} findings", flush=True)
    return Trial(number, len(findings))


def _prepare(names: Sequence[str]) -> None:
    """Reads good input once for each target, so that what it imports and keeps is there in every child.

    Objects that last are not searched for garbage again and again, as in a command that runs by itself.
    """
    for name in names:
        with contextlib.suppress(*targets()[name].refusals):
            targets()[name].read(targets()[name].samples[0])
    gc.collect()
    gc.freeze()
    gc.set_threshold(*COMMAND_THRESHOLDS)


def main(arguments: list[str]) -> int:
    """Try every target for some seconds; 1 if there are findings."""
    parser = argparse.ArgumentParser(description="Broken input for everything that reads.")
    parser.add_argument("--seconds", type=float, default=60, help="for each target")
    parser.add_argument(
        "--count", type=int, default=0, help="for each target; default: as many as there is time for"
    )
    parser.add_argument("--seed", type=int, default=None, help="default: a new one")
    parser.add_argument("--minutes", type=float, default=0, help="repeat, each time with the next seed")
    parser.add_argument(
        "--numbers", action="store_true", help="once, each number of the good input replaced by each extreme"
    )
    parser.add_argument(
        "--figures", type=Path, default=None, help="a file of runs, which this one is added to"
    )
    parser.add_argument(
        "--target",
        choices=targets(),
        metavar="NAME",
        action="append",
        help="default: all; a wrong name lists them",
    )
    options = parser.parse_args(arguments)
    seed = random.randrange(2**32) if options.seed is None else options.seed
    totals, end_s = Totals(seed, options.figures), time.monotonic() + 60 * options.minutes
    names = options.target or list(targets())
    _prepare(names)
    plan = Plan(math.inf, options.count, NUMBERS) if options.numbers else Plan(options.seconds, options.count)
    while totals.rounds == 0 or time.monotonic() < end_s:
        for name in names:
            totals.add(name, tried_for_long(name, seed + totals.rounds, plan))
        totals.rounds += 1
        totals.write()
    failed = [name for name in names if totals.findings[name]]
    print(
        f"seed {seed}, {totals.rounds} rounds: {totals.inputs.total()} inputs for {len(names)} targets, "
        f"findings in {len(failed)}: {', '.join(failed) or 'none'}"
    )
    return 1 if failed else 0


EXIT_CODES = (0, 1, 2, 3, 4)
"""What `nodewright.cli.app` documents."""


def reader_of(line: str, other: bytes = b"") -> Reader:
    """Runs the command on a file with the content, and returns its exit code; its output is dropped."""

    def read(content: bytes) -> int:
        words = chosen_line(line, content).split()
        arguments = [_argument(word, content, other) for word in words]
        printed, messages = (io.TextIOWrapper(io.BytesIO(), "utf-8") for _ in range(2))
        with (
            contextlib.redirect_stdout(printed),
            contextlib.redirect_stderr(messages),
            contextlib.chdir(ROOT),
            _ending(),
        ):
            code = run(arguments)
        _check_answer(words, code, *(_content(stream) for stream in (printed, messages)))
        return code

    return read


def _content(stream: io.TextIOWrapper) -> str:
    stream.seek(0)
    return stream.read()


def chosen_line(line: str, content: bytes) -> str:
    """The line with one of the alternatives of each word, which the content chooses.

    >>> chosen_line("requests |--explain", b"1")
    'requests --explain'
    """
    number = zlib.crc32(content)
    words = list[str]()
    for word in line.split():
        choices = word.split("|")
        number, index = divmod(number, len(choices))
        words.append(choices[index])
    return " ".join(filter(None, words))


def _check_answer(words: Sequence[str], code: int, printed: str, messages: str) -> None:
    """Errors: ValueError for an answer that the documentation does not allow."""
    if code not in EXIT_CODES:
        raise ValueError(f"exit code {code}")
    if "Traceback (most recent call last)" in messages:
        raise ValueError(f"a traceback is printed: {messages.splitlines()[-1]}")
    if code in (terminal.ERROR, terminal.USAGE) and not printed.strip() and not messages.strip():
        raise ValueError(f"exit code {code} without a message")
    is_json = words[-1] == "-ojson" or words[-2:] == ["-o", "json"]
    if is_json and code not in (terminal.ERROR, terminal.USAGE) and printed.strip():
        json.loads(printed, parse_constant=_refuse_constant)


@contextlib.contextmanager
def _ending() -> Iterator[None]:
    """Within this context, TimeoutError is raised after a while, also of a command that waits.

    Servers raise the priority of their process, which is that of the tests here: it stays.
    """

    def end(_number: int, _frame: object) -> None:
        raise TimeoutError("the command does not end")

    previous = signal.signal(signal.SIGALRM, end)
    signal.setitimer(signal.ITIMER_REAL, 3 * DAMAGED.cpu_s)
    try:
        with mock.patch("os.setpriority"):
            yield
    finally:
        signal.setitimer(signal.ITIMER_REAL, 0)
        signal.signal(signal.SIGALRM, previous)


def _argument(word: str, content: bytes, other: bytes) -> str:
    """The word, or the path of a file with the content; for TREE:SOURCE:FILE a directory with it in that file."""
    if word.startswith("TREE:"):
        _, source, file = word.split(":")
        tree = _tree(source, file)
        (tree / file).write_bytes(content)
        return str(tree)
    if "WORD" in word:
        return word.replace("WORD", _text(content).replace("\0", ""))
    if word in ("KUBE", "SOCKET"):
        return _server_argument(word, content)
    count, _, file = word.rpartition("*")
    name = {"FILE": "in.json", "TABLE": "in.csv", "OTHER": "other.json"}.get(file)
    if name is None:
        return word
    path = _directory() / name
    path.write_bytes(other if word == "OTHER" else content)
    return f"{count}*{path}" if count else str(path)


def _server_argument(word: str, content: bytes) -> str:
    server = server_of_process(os.getpid(), _directory())
    AnsweringServer.content = cluster() if word == "SOCKET" else content
    if word == "SOCKET":
        return str(server.socket)
    path = _directory() / "kubeconfig"
    path.write_bytes(kubeconfig(server.url))
    return str(path)


@cache
def _directory() -> Path:
    """A directory for the files of this process and of its children, which run one at a time.

    It is in memory if this machine has such a file system, and is removed when the process ends.
    """
    memory = "/dev/shm" if os.access("/dev/shm", os.W_OK) else None  # noqa: S108 - a new directory in it
    directory = tempfile.TemporaryDirectory(prefix="fuzz-", dir=memory)
    _kept.append(directory)
    return Path(directory.name)


_kept: list[tempfile.TemporaryDirectory[str]] = []
"""Removes its directory when the process ends."""


@cache
def _tree(source: str, file: str) -> Path:
    """A copy of the directory in which only that file is written."""
    tree = Path(tempfile.mkdtemp(dir=_directory()), "tree")
    shutil.copytree(ROOT / source, tree)
    (tree / file).parent.mkdir(parents=True, exist_ok=True)
    return tree


def _refuse_constant(name: str) -> None:
    raise ValueError(f"{name} is not JSON")
