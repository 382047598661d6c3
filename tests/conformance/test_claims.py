"""A sample of Kubernetes' recorded decisions about resource claims, put to the engine: all answers are the recorded ones."""

import os
from pathlib import Path

import pytest

from nodewright.testing.conformance.vector_run import ConformanceReport, run_vectors
from nodewright.testing.conformance.vectors import CLAIM_FAMILIES, Vector, vectors_of_release

SEED = int(os.environ.get("FAULT_SEED") or 0)
SHARE = int(os.environ.get("RECORDED_SHARE") or 3)
"""Of a family with hundreds of questions, one in so many is asked, others with each seed; `make soak` asks everything."""
VECTORS = Path(__file__).parent / "claims" / "vectors"
RECORDED = [
    *((family, "1.36") for family in CLAIM_FAMILIES),
    ("dra-allocate", "1.35"),
    ("dra-allocate", "1.34"),
]


@pytest.mark.parametrize(("family", "release"), RECORDED)
def test_every_answer_is_the_recorded_one(family: str, release: str) -> None:
    vectors = list(vectors_of_release([str(VECTORS / f"{family}.jsonl.gz")], release))
    judged = [vector for vector in vectors if isinstance(vector, Vector)]
    assert len(judged) == len(vectors) >= 40
    if len(judged) > 100:
        judged = judged[SEED % SHARE :: SHARE]
    report = ConformanceReport(max_shown=3)
    for outcome in run_vectors(judged, {}):
        report.add(outcome)
    assert (report.failed_count, report.passed_count) == (0, len(judged)), report.lines()


def test_there_are_vectors_of_every_family_and_no_others() -> None:
    assert {path.name for path in VECTORS.iterdir()} == {f"{family}.jsonl.gz" for family in CLAIM_FAMILIES}
