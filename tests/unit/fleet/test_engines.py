"""Whoever works, results are the same and in order."""

import os
from importlib.util import find_spec

import pytest

from nodewright.fleet.engines import Engine, EngineMissingError, map_chunks

NEEDED = {Engine.RAY: "ray", Engine.DASK: "distributed"}


def test_one_worker_is_this_process() -> None:
    assert set(map_chunks(lambda _: os.getpid(), range(3))) == {os.getpid()}


def test_processes_give_results_in_the_order_of_their_chunks() -> None:
    assert list(map_chunks(abs, range(-9, 0), workers=2)) == list(range(9, 0, -1))


def test_the_exception_of_a_chunk_is_raised_at_its_position() -> None:
    results = map_chunks(int, ["2", "x", "3"], workers=2)
    assert next(results) == 2
    with pytest.raises(ValueError, match="invalid literal"):
        next(results)


@pytest.mark.parametrize("engine", list(NEEDED))
def test_an_engine_that_is_not_installed_names_the_package(engine: Engine) -> None:
    if find_spec(NEEDED[engine]):
        pytest.skip(f"{engine} is installed")
    with pytest.raises(EngineMissingError, match=f"nodewright\\[{engine}\\]"):
        list(map_chunks(abs, [1], engine=engine))
