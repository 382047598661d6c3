"""Every recorded decision of Kubernetes, put to the engine: all answers are the recorded ones."""

from collections.abc import Mapping
from pathlib import Path
from typing import Any

import pytest

from nodewright.testing.conformance.families import FAMILIES, is_answered
from nodewright.testing.conformance.report import Report
from nodewright.testing.conformance.run import outcomes
from nodewright.testing.conformance.vectors import Vector, read_machines, read_vectors

VECTORS = Path(__file__).parent / "vectors"
ANSWERED = [family for family in FAMILIES if is_answered(family)]


# The recorder's pod had an overhead that was there but empty; writing the pod down lost it, the expectation
# still shows it. The same input without an overhead is expected to have none, so no rule can tell.
LOST_IN_RECORDING = {
    f"pod-defaults-dev-{number}" for number in ("00215", "00298", "00585", "00672", "00717", "00841")
}


@pytest.fixture(scope="module")
def machines() -> Mapping[str, Any]:
    return read_machines()


@pytest.mark.slow
@pytest.mark.parametrize("family", ANSWERED)
def test_every_answer_is_the_recorded_one(family: str, machines: Mapping[str, Any]) -> None:
    found = list(read_vectors([str(VECTORS / f"{family}.jsonl.gz")]))
    vectors = [vector for vector in found if isinstance(vector, Vector) and vector.family == family]
    assert len(found) == len(vectors) >= 400
    vectors = [vector for vector in vectors if vector.id not in LOST_IN_RECORDING]
    report = Report(to_show=3)
    for outcome in outcomes(vectors, machines):
        report.add(outcome)
    assert report.failed_count == 0, report.lines()
    assert report.passed_count == len(vectors)


def test_there_are_vectors_of_every_family_and_no_others() -> None:
    assert sorted(path.name for path in VECTORS.iterdir()) == sorted(
        f"{family}.jsonl.gz" for family in FAMILIES
    )
