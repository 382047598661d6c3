"""Who works on chunks: this process, processes of this machine, or a cluster that is there already; same results."""

import multiprocessing
import os
import signal
from collections import deque
from collections.abc import Callable, Iterable, Iterator
from concurrent.futures import Future, ProcessPoolExecutor
from enum import StrEnum
from importlib import import_module
from typing import Any, TypeVar

C = TypeVar("C")
R = TypeVar("R")


class Engine(StrEnum):
    """Who works."""

    LOCAL = "local"
    RAY = "ray"
    """A Ray cluster: that of RAY_ADDRESS, else one on this machine for as long as it takes."""
    DASK = "dask"
    """A Dask cluster: that of DASK_SCHEDULER_ADDRESS, else one on this machine for as long as it takes."""


class EngineMissingError(Exception):
    """What an engine needs is not installed."""


def map_chunks(
    function: Callable[[C], R], chunks: Iterable[C], *, workers: int = 1, engine: Engine = Engine.LOCAL
) -> Iterator[R]:
    """What the function makes of each chunk, in their order, whoever works and however many there are.

    A function of a module, and chunks and results that can be pickled. With one worker of this machine, in
    this process.
    Errors: EngineMissingError; whatever the function raises, when its chunk's turn comes.

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


def _by_processes(function: Callable[[C], R], chunks: Iterable[C], workers: int) -> Iterator[R]:
    # Processes that are forked from one that has done nothing yet: threads of this one do them no harm.
    context = multiprocessing.get_context("forkserver")
    # A Ctrl-C ends them at once and without a word: it is for this process to say something.
    ending = (signal.SIGINT, signal.SIG_DFL)
    with ProcessPoolExecutor(workers, context, initializer=signal.signal, initargs=ending) as pool:
        try:
            yield from _in_order(lambda chunk: pool.submit(function, chunk), chunks, 2 * workers)
        except BaseException:
            pool.shutdown(cancel_futures=True)
            raise


def _in_order(submit: Callable[[C], "Future[R]"], chunks: Iterable[C], ahead: int) -> Iterator[R]:
    """The results in order, with no more chunks under way than that."""
    under_way: deque[Future[R]] = deque()
    for chunk in chunks:
        under_way.append(submit(chunk))
        if len(under_way) >= ahead:
            yield under_way.popleft().result()
    while under_way:
        yield under_way.popleft().result()


def _by_ray(function: Callable[[C], R], chunks: Iterable[C], workers: int) -> Iterator[R]:
    ray = _imported("ray", "ray")
    address = os.environ.get("RAY_ADDRESS")
    was_there = ray.is_initialized()
    if not was_there:
        given: dict[str, Any] = {"address": address} if address else {"num_cpus": max(workers, 1)}
        ray.init(**given, log_to_driver=False, include_dashboard=None if address else False)
    try:
        remote = ray.remote(_call)
        under_way: deque[Any] = deque()
        for chunk in chunks:
            under_way.append(remote.remote(function, chunk))
            if len(under_way) >= 2 * max(workers, 8):
                yield ray.get(under_way.popleft())
        while under_way:
            yield ray.get(under_way.popleft())
    finally:
        if not was_there:
            ray.shutdown()


def _by_dask(function: Callable[[C], R], chunks: Iterable[C], workers: int) -> Iterator[R]:
    distributed = _imported("distributed", "dask")
    address = os.environ.get("DASK_SCHEDULER_ADDRESS")
    given: dict[str, Any] = (
        {"address": address}
        if address
        else {"n_workers": max(workers, 1), "threads_per_worker": 1, "dashboard_address": None}
    )
    with distributed.Client(**given) as client:
        # Dask would take two chunks that are equal for one, which is as well; but not what they stand for.
        yield from _in_order(
            lambda chunk: client.submit(function, chunk, pure=False), chunks, 2 * max(workers, 8)
        )


def _call(function: Callable[[C], R], chunk: C) -> R:
    return function(chunk)


def _imported(module: str, extra: str) -> Any:
    try:
        return import_module(module)
    except ImportError as error:
        raise EngineMissingError(
            f"engine {extra} needs a package that is not installed: pip install 'nodewright[{extra}]'"
        ) from error
