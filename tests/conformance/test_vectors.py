"""Recorded decisions of Kubernetes of every release, put to the engine: all answers are the recorded ones."""

import os
from collections.abc import Iterable, Mapping
from functools import lru_cache
from pathlib import Path
from typing import Any
from zlib import crc32

import pytest

from nodewright.model.errors import Fault
from nodewright.model.releases.release_table import RELEASE_TABLES
from nodewright.testing.conformance.vector_run import ConformanceReport, run_vectors
from nodewright.testing.conformance.vectors import (
    FAMILIES,
    RECORDED,
    Vector,
    answered_by_release,
    read_machines,
    read_vectors,
    recorded_sample,
)

HERE = Path(__file__).parent
VECTORS, RELEASES = HERE / "vectors", HERE / "releases"
SAMPLE = [vector for vector in read_vectors([str(recorded_sample())]) if isinstance(vector, Vector)]
"""What `tools.recorded_sample` chooses for the fast tests."""

# The recorder's pod had an overhead that was there but empty; writing the pod down lost it, the expectation
# still shows it. The same input without an overhead is expected to have none, so no rule can tell.
LOST_IN_RECORDING = {
    f"pod-defaults-dev-{number}" for number in ("00215", "00298", "00585", "00672", "00717", "00841")
}
# Recorded from a distribution's build of 1.35 with the device hints of 1.36. Upstream's 1.35 has those of 1.34; the
# other inputs on which this shows were left out, these two could not be asked of 1.34.
RECORDED_FROM_DISTRIBUTION = {("1.35", "node-dev-0088"), ("1.35", "node-dev-0345")}
# Computed partly with the QoS classes of 1.36: shares and requests that 1.37 has of the same pods are missing in it.
RECORDED_OF_TWO_RELEASES = {("1.37", "cgroup-dev-01956")}
NOT_ASKED = RECORDED_FROM_DISTRIBUTION | RECORDED_OF_TWO_RELEASES
SEED = int(os.environ.get("FAULT_SEED") or 0)
SHARE = int(os.environ.get("RECORDED_SHARE") or 64)
"""Of the questions that an older release answers as the newest does, one in so many is asked, others with each seed."""
OTHER_SHARE = max(1, SHARE // 8)
"""The same of the questions to the newest release, and of those that an older one answers otherwise; `make soak` asks everything."""


@pytest.fixture(scope="module")
def machines() -> Mapping[str, Any]:
    return read_machines()


def recorded(family: str, release: str) -> list[Vector]:
    """The vectors of a family and a release that a rule can answer, as many as the shares say."""
    result = [
        vector
        for path, vectors in vectors_by_file(family).items()
        for vector in answered_by_release(path, vectors, release)
    ]
    vectors = [vector for vector in result if isinstance(vector, Vector) and vector.family == family]
    assert len(result) == len(vectors) >= 400
    return [
        vector
        for vector in vectors
        if vector.id not in LOST_IN_RECORDING and (release, vector.id) not in NOT_ASKED
        if is_chosen(vector, release)
    ]


def is_chosen(vector: Vector, release: str) -> bool:
    """Whether the release is asked; an older one more often where its answer differs from the newest's."""
    differs = release == RECORDED.name or vector.expect != newest_answers(vector.family).get(vector.id)
    return in_share(vector, OTHER_SHARE if differs else SHARE)


def in_share(vector: Vector, share: int) -> bool:
    return crc32(f"{vector.id} {SEED}".encode()) % share == 0


@lru_cache(maxsize=1)
def vectors_by_file(family: str) -> Mapping[str, list[Vector | Fault]]:
    """The family's vectors by the file that has them, which are read once for all releases."""
    files = [VECTORS / f"{family}.jsonl.gz", RELEASES / "extra" / f"{family}.jsonl.gz"]
    first_places: dict[tuple[str, str], str] = {}
    return {str(file): list(read_vectors([str(file)], first_places)) for file in files if file.exists()}


@lru_cache(maxsize=1)
def newest_answers(family: str) -> Mapping[str, Any]:
    path = str(VECTORS / f"{family}.jsonl.gz")
    vectors = answered_by_release(path, vectors_by_file(family)[path], RECORDED.name)
    return {vector.id: vector.expect for vector in vectors if isinstance(vector, Vector)}


def assert_all_pass(vectors: Iterable[Vector], machines: Mapping[str, Any]) -> None:
    vectors = list(vectors)
    report = ConformanceReport(max_shown=3)
    for outcome in run_vectors(vectors, machines):
        report.add(outcome)
    assert report.failed_count == 0, report.lines()
    assert report.passed_count == len(vectors)


@pytest.mark.slow
@pytest.mark.parametrize("release", RELEASE_TABLES)
@pytest.mark.parametrize("family", FAMILIES)
def test_every_answer_is_the_recorded_one(family: str, release: str, machines: Mapping[str, Any]) -> None:
    assert_all_pass(recorded(family, release), machines)


@pytest.mark.parametrize("family", FAMILIES)
def test_a_sample_of_every_release_is_answered_as_recorded(family: str, machines: Mapping[str, Any]) -> None:
    sample = [vector for vector in SAMPLE if vector.family == family and vector.id not in LOST_IN_RECORDING]
    assert {vector.release for vector in sample} == {*RELEASE_TABLES}
    assert_all_pass(sample, machines)


def test_there_are_vectors_of_every_family_and_no_others() -> None:
    assert sorted(path.name for path in VECTORS.iterdir()) == sorted(
        f"{family}.jsonl.gz" for family in FAMILIES
    )


def test_there_are_differences_of_every_older_release() -> None:
    assert {path.name for path in RELEASES.iterdir()} == {*RELEASE_TABLES, "extra"}
    for release in RELEASE_TABLES:
        differing = {path.name.removesuffix(".jsonl.gz") for path in (RELEASES / release).glob("*.jsonl.gz")}
        assert differing <= {*FAMILIES}
        assert bool(differing) == (release != RECORDED.name)
