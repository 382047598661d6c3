"""What releases decide differently about recorded nodes is found by the comparison of releases."""

import gzip
import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from nodewright.documents.formats.decode import decode
from nodewright.documents.formats.workloads import Workload
from nodewright.documents.profiles.state_files.checkpoints import StateFiles
from nodewright.engine.node.restart.kubelet_startup import StoredState
from nodewright.model.kubernetes.node_profile import NodeProfile, NodeProfileSpec
from nodewright.model.kubernetes.objects import Pod
from nodewright.model.releases.release_table import RELEASE_TABLES
from nodewright.predict.upgrade.release_facts import Area, Aspect, UpgradeCase, decide
from nodewright.predict.upgrade.upgrade_report import Difference, differences_of
from nodewright.testing.conformance.vectors import RECORDED

HERE = Path(__file__).parent
RELEASES = HERE / "releases"
EVERY = 16
"""One of so many records is tried."""


def lines(path: Path) -> Iterator[dict[str, Any]]:
    with gzip.open(path, "rt") as file:
        yield from map(json.loads, file)


@pytest.fixture(scope="module")
def newest() -> dict[str, dict[str, Any]]:
    return {line["id"]: line for line in lines(HERE / "vectors" / "node.jsonl.gz")}


def added_pods(question: dict[str, Any]) -> list[Pod]:
    """The pods that are added before any is removed."""
    pods = []
    for event in question.get("events") or ():
        if "add" not in event:
            break
        pods.append(decode(event["add"], Pod))
    return pods


def differences(question: dict[str, Any], pods: list[Pod], release: str) -> list[Difference]:
    fields = {name: value for name, value in question.items() if name not in ("events", "tag")}
    workloads = [
        Workload(
            source="", api_version="v1", kind="Pod", name="", namespace="default", replicas=None, pod=pod
        )
        for pod in pods
    ]
    case = UpgradeCase(
        profile=NodeProfile(spec=decode(fields, NodeProfileSpec)),
        source="record",
        files=StateFiles(contents={}),
        pods=(),
        held=StoredState(),
        manifests=workloads,
    )
    decided = (decide(case, RELEASE_TABLES[release]), decide(case, RECORDED))
    return list(differences_of(decided[0].facts, decided[1].facts))


@pytest.mark.slow
@pytest.mark.parametrize(
    "release", [name for name in RELEASE_TABLES if (RELEASES / name / "node.jsonl.gz").exists()]
)
def test_every_verdict_and_start_that_records_of_releases_tell_apart_is_found(
    release: str, newest: dict[str, dict[str, Any]]
) -> None:
    tried = 0
    for record in list(lines(RELEASES / release / "node.jsonl.gz"))[::EVERY]:
        old, line = record["expect"], newest.get(record["id"])
        if line is None:
            continue
        new, pods = line["expect"], added_pods(line["input"])
        if len({pod.full_name for pod in pods}) < len(pods):
            continue
        tried += 1
        reported = differences(line["input"], pods, release)
        if old.get("error") or new.get("error"):
            starts = any(difference.aspect is Aspect.START_ERROR for difference in reported)
            assert starts or bool(old.get("error")) == bool(new.get("error")), record["id"]
            continue
        events = zip(pods, old["events"], new["events"], strict=False)
        flipped = {pod.full_name for pod, one, other in events if one["admitted"] != other["admitted"]}
        verdicts = {
            difference.subject
            for difference in reported
            if difference.area is Area.MANIFESTS and difference.aspect is Aspect.VERDICT
        }
        assert flipped <= verdicts, record["id"]
    assert tried
