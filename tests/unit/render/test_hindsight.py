"""What a failed pod's status proves, in words."""

import pytest

from nodewright.model.refusal import (
    ConditionsThen,
    ContainerEnded,
    LowOnResource,
    MoreThanRequested,
    OverLimit,
    ProvenFact,
    TooFewDevices,
)
from nodewright.render.hindsight import proven_sentence

SAID: list[tuple[ProvenFact, str]] = [
    (TooFewDevices(resource="v/gpu", requested=2, available=1), "v/gpu: 2 asked for, 1 free"),
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
        ContainerEnded(name="app", reason="OOMKilled", exit_code=137),
        "container app was ended by the kernel, for it used more memory than its limit (OOMKilled, exit code 137)",
    ),
    (ContainerEnded(name="app", reason="Error", exit_code=1), "container app ended with exit code 1 (Error)"),
    (ContainerEnded(name="app", reason="", exit_code=2), "container app ended with exit code 2"),
]


@pytest.mark.parametrize(("fact", "text"), SAID)
def test_each_fact_has_its_sentence(fact: ProvenFact, text: str) -> None:
    assert proven_sentence(fact) == text
