"""Engines that process chunks with the same results: this process, local processes, or a Ray or Dask cluster."""

import multiprocessing
import os
import signal
from collections import deque
from collections.abc import Callable, Iterable, Iterator
from concurrent.futures import Future, ProcessPoolExecutor
from enum import StrEnum
from importlib import import_module
from typing import Any, TypeVar

from nodewright.version import install_command

ChunkT = TypeVar("ChunkT")
ResultT = TypeVar("ResultT")


class Engine(StrEnum):
    """Where chunks are processed."""

    LOCAL = "local"
    RAY = "ray"
    """The Ray cluster at RAY_ADDRESS, or a temporary one on this machine."""
    DASK = "dask"
    """The Dask cluster at DASK_SCHEDULER_ADDRESS, or a temporary one on this machine."""


class EngineMissingError(Exception):
    """A package that the engine needs is not installed."""


def map_chunks(
    function: Callable[[ChunkT], ResultT],
    chunks: Iterable[ChunkT],
    *,
    workers: int = 1,
    engine: Engine = Engine.LOCAL,
) -> Iterator[ResultT]:
    """The function's result for each chunk, in order, independent of engine and number of workers.

    The function must be a module-level function; chunks and results must be picklable. One local worker is this
    process.
    Errors: EngineMissingError; exceptions of the function, at the position of the chunk.

    >>> list(map_chunks(abs, [-1, 2, -3]))
    [1, 2, 3]
    """
    match engine:
        case Engine.RAY:
            return _by_ray(function, chunks, workers)
        case Engine.DASK:
            return _by_dask(function, chunks, workers)
        case Engine.LOCAL:
            return map(function, chunks) if workers <= 1 else _by_processes(function, chunks, workers)


def _by_processes(
    function: Callable[[ChunkT], ResultT], chunks: Iterable[ChunkT], workers: int
) -> Iterator[ResultT]:
    # Workers are forked from a fresh server process, because forking a process with threads is unsafe.
    context = multiprocessing.get_context("forkserver")
    # Ctrl-C ends workers at once without output: only this process reports it.
    ignore_interrupt = (signal.SIGINT, signal.SIG_DFL)
    with ProcessPoolExecutor(workers, context, initializer=signal.signal, initargs=ignore_interrupt) as pool:
        try:
            yield from _in_order(lambda chunk: pool.submit(function, chunk), chunks, 2 * workers)
        except BaseException:
            pool.shutdown(cancel_futures=True)
            raise


def _in_order(
    submit: Callable[[ChunkT], "Future[ResultT]"], chunks: Iterable[ChunkT], ahead: int
) -> Iterator[ResultT]:
    """The results in order, with at most ``ahead`` chunks in progress."""
    in_progress: deque[Future[ResultT]] = deque()
    for chunk in chunks:
        in_progress.append(submit(chunk))
        if len(in_progress) >= ahead:
            yield in_progress.popleft().result()
    while in_progress:
        yield in_progress.popleft().result()


def _by_ray(
    function: Callable[[ChunkT], ResultT], chunks: Iterable[ChunkT], workers: int
) -> Iterator[ResultT]:
    ray = _imported("ray", "ray")
    address = os.environ.get("RAY_ADDRESS")
    was_initialized = ray.is_initialized()
    if not was_initialized:
        arguments: dict[str, Any] = {"address": address} if address else {"num_cpus": max(workers, 1)}
        ray.init(**arguments, log_to_driver=False, include_dashboard=None if address else False)
    try:
        remote = ray.remote(_call)
        in_progress: deque[Any] = deque()
        for chunk in chunks:
            in_progress.append(remote.remote(function, chunk))
            if len(in_progress) >= 2 * max(workers, 8):
                yield ray.get(in_progress.popleft())
        while in_progress:
            yield ray.get(in_progress.popleft())
    finally:
        if not was_initialized:
            ray.shutdown()


def _by_dask(
    function: Callable[[ChunkT], ResultT], chunks: Iterable[ChunkT], workers: int
) -> Iterator[ResultT]:
    distributed = _imported("distributed", "dask")
    address = os.environ.get("DASK_SCHEDULER_ADDRESS")
    arguments: dict[str, Any] = (
        {"address": address}
        if address
        else {"n_workers": max(workers, 1), "threads_per_worker": 1, "dashboard_address": None}
    )
    with distributed.Client(**arguments) as client:
        # Dask deduplicates calls by a hash of their arguments, which must not be relied on here.
        yield from _in_order(
            lambda chunk: client.submit(function, chunk, pure=False), chunks, 2 * max(workers, 8)
        )


def _call(function: Callable[[ChunkT], ResultT], chunk: ChunkT) -> ResultT:
    return function(chunk)


def _imported(module: str, extra: str) -> Any:
    try:
        return import_module(module)
    except ImportError as error:
        raise EngineMissingError(
            f"engine {extra} needs a package that is not installed: {install_command(extra)}"
        ) from error
