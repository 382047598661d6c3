"""Sentences for the facts that a failed pod's status proves."""

import pytest

from nodewright.model.reasons.container_evidence import (
    ConditionsThen,
    ContainerEnded,
    ContainerOOMKilled,
    LowOnResource,
    MoreThanRequested,
    OverLimit,
)
from nodewright.model.reasons.status_evidence import (
    StatusFact,
    TooFewDevices,
)

SENTENCES: list[tuple[StatusFact, str]] = [
    (TooFewDevices(resource="v/gpu", requested=2, available=1), "v/gpu: 2 requested, 1 free"),
    (
        ConditionsThen(conditions=("DiskPressure", "PIDPressure")),
        "the node had the condition DiskPressure, PIDPressure",
    ),
    (LowOnResource(resource="pids"), "the node was short of pids"),
    (
        LowOnResource(resource="memory", threshold="100Mi", available="90Mi"),
        "the node was short of memory: 90Mi left, less than the threshold of 100Mi",
    ),
    (
        MoreThanRequested(name="web", is_pod=True, used="2Gi", requested="1Gi", resource="memory"),
        "pod web used 2Gi of memory and had requested 1Gi",
    ),
    (
        OverLimit(what="container", name="app", limit="1Gi"),
        "container app used more local storage than its limit of 1Gi",
    ),
    (
        OverLimit(what="emptyDir", name="tmp", limit="1Gi"),
        "emptyDir volume tmp held more than its limit of 1Gi",
    ),
    (
        OverLimit(what="pod", name="", limit="2Gi"),
        "the pod used more local storage than its containers' limits of 2Gi together",
    ),
    (
        ContainerOOMKilled(name="app", exit_code=137, limit="1Gi"),
        (
            "the kernel's OOM killer ended a process of container app (OOMKilled, exit code 137); "
            "the container has memory limit 1Gi"
        ),
    ),
    (
        ContainerOOMKilled(name="app", exit_code=137),
        (
            "the kernel's OOM killer ended a process of container app (OOMKilled, exit code 137); "
            "the container has no memory limit of its own"
        ),
    ),
    (ContainerEnded(name="app", reason="Error", exit_code=1), "container app ended with exit code 1 (Error)"),
    (ContainerEnded(name="app", reason="", exit_code=2), "container app ended with exit code 2"),
]


@pytest.mark.parametrize(("fact", "text"), SENTENCES)
def test_each_fact_has_its_sentence(fact: StatusFact, text: str) -> None:
    assert fact.sentence() == text
