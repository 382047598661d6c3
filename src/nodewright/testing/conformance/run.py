"""Vectors put to the engine, one after another or by several processes; every answer judged where it can be."""

import json
import multiprocessing
import signal
import traceback
from collections import deque
from collections.abc import Callable, Iterable, Iterator, Mapping
from concurrent.futures import Future, ProcessPoolExecutor
from dataclasses import dataclass
from itertools import islice
from pathlib import Path
from typing import Any, TypeAlias

from nodewright.testing.conformance.families import NoEngine, answer
from nodewright.testing.conformance.judge import Mismatch, mismatches
from nodewright.testing.conformance.vectors import Vector

Engine: TypeAlias = Callable[[str, dict[str, Any], Mapping[str, Any]], Any]
"""Gives the answer to a question of a family, machines by name beside it."""

CHUNK = 16
"""Vectors that a process takes at a time: some ten milliseconds of work, and a prompt end on Ctrl-C."""

UNANSWERED = "unanswered"
"""The one member of an answer that stands for none; no family has such a member, so it never passes."""


@dataclass(frozen=True, slots=True)
class Outcome:
    """What came of a vector."""

    id: str
    family: str
    is_judged: bool
    """Whether there was a recorded answer to compare with."""
    mismatches: tuple[Mismatch, ...] = ()
    trouble: str = ""
    """Why there is no answer: the engine's exception, or that there is no engine."""
    answer_text: str = ""
    """The answer as JSON, where answers are kept."""

    @property
    def has_failed(self) -> bool:
        """Whether the answer is wrong or missing."""
        return bool(self.mismatches or self.trouble)


def outcomes(
    vectors: Iterable[Vector], machines: Mapping[str, Any], *, jobs: int = 1, keep_answers: bool = False
) -> Iterator[Outcome]:
    """What comes of each vector, in their order, worked on by that many processes."""
    if jobs == 1:
        return (outcome(vector, machines, keep_answer=keep_answers) for vector in vectors)
    return _by_processes(vectors, machines, jobs=jobs, keep_answers=keep_answers)


def outcome(
    vector: Vector, machines: Mapping[str, Any], *, engine: Engine = answer, keep_answer: bool = False
) -> Outcome:
    """What the engine makes of the vector; whatever it raises is an outcome, too."""
    text = trouble = ""
    try:
        given = engine(vector.family, vector.question, machines)
        # The answer is judged as a reader of the written one has it: tuples are lists, keys are texts.
        text = json.dumps(given, ensure_ascii=False, allow_nan=False)
    except NoEngine as error:
        trouble = str(error)
    except Exception as error:  # noqa: BLE001 - an engine's bug is a failed vector, not the end of the run
        trouble = f"{type(error).__name__}: {error} ({_place(error)})"
    if trouble:
        text = json.dumps({UNANSWERED: trouble}, ensure_ascii=True)
    found: tuple[Mismatch, ...] = ()
    if vector.is_recorded and not trouble:
        found = mismatches(vector.family, vector.question, vector.expect, json.loads(text))
    kept = text if keep_answer else ""
    return Outcome(vector.id, vector.family, vector.is_recorded, found, trouble, kept)


def _place(error: Exception) -> str:
    frames = traceback.extract_tb(error.__traceback__)
    return f"{Path(frames[-1].filename).name}:{frames[-1].lineno}, {frames[-1].name}"


def _by_processes(
    vectors: Iterable[Vector], machines: Mapping[str, Any], *, jobs: int, keep_answers: bool
) -> Iterator[Outcome]:
    context = multiprocessing.get_context("forkserver")
    remaining = iter(vectors)
    running: deque[Future[list[Outcome]]] = deque()
    pool = ProcessPoolExecutor(jobs, context, initializer=_begin, initargs=(machines, keep_answers))
    try:
        # Chunks are read as they are wanted: the files need not fit into memory.
        while True:
            while len(running) < 2 * jobs and (chunk := list(islice(remaining, CHUNK))):
                running.append(pool.submit(_chunk, chunk))
            if not running:
                break
            yield from running.popleft().result()
    finally:
        pool.shutdown(wait=True, cancel_futures=True)


class _Process:
    """What a process of the pool is given once."""

    machines: Mapping[str, Any] = {}
    keep_answers = False


def _begin(machines: Mapping[str, Any], keep_answers: bool) -> None:  # noqa: FBT001 - called by the pool
    # Ctrl-C in a terminal reaches every process; these are to end without a word.
    signal.signal(signal.SIGINT, signal.SIG_DFL)
    _Process.machines, _Process.keep_answers = machines, keep_answers


def _chunk(vectors: list[Vector]) -> list[Outcome]:
    return [outcome(vector, _Process.machines, keep_answer=_Process.keep_answers) for vector in vectors]
