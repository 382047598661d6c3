"""Statuses of failed pods, read back."""

from typing import Any

import pytest

from nodewright.model.cpu_reasons import NotEnoughCPUs, NotEnoughWholeCores, NotWholeCores
from nodewright.model.objects import Pod
from nodewright.model.reasons import (
    InsufficientResource,
    NodeFeaturesMissing,
    OtherPredicate,
    Reason,
    SysctlForbidden,
)
from nodewright.model.refusal import (
    ConditionsThen,
    ContainerEnded,
    Ending,
    LowOnResource,
    MoreThanRequested,
    OverLimit,
    ProvenFact,
    TooFewDevices,
)
from nodewright.render.messages import message
from nodewright.world.decode import decode
from nodewright.world.statuses import REJECTED, proof_of


def failed(reason: str, text: str, **status: Any) -> Pod:
    return decode({"status": {"phase": "Failed", "reason": reason, "message": text, **status}}, Pod)


@pytest.mark.parametrize(
    "reason",
    [
        InsufficientResource(resource="nvidia.com/gpu", requested=4, used=6, capacity=8),
        NotEnoughCPUs(requested=4, available=3),
        NotWholeCores(requested=3, cpus_per_core=2),
        NotEnoughWholeCores(requested=4, cpus_per_core=2, available=2),
        SysctlForbidden(sysctl="kernel.msgmax"),
        SysctlForbidden(sysctl="kernel.sem", host_namespace="IPC"),
        NodeFeaturesMissing(features=("A", "B")),
        OtherPredicate(predicate="NodePorts", description="no free ports"),
    ],
)
def test_a_refusal_reads_back_as_what_it_was_written_from(reason: Reason) -> None:
    said = message(reason)
    proof = proof_of(failed(said.reason, REJECTED + said.message))
    assert proof.facts == (reason,)
    assert proof.ending is Ending.TURNED_AWAY
    assert proof.message == said.message


LOW = "The node was low on resource: memory. Threshold quantity: 100Mi, available: 90Mi. "
USED = "Container app was using 2Gi, request is 1Gi, has larger consumption of memory. "
DEVICES = (
    "Allocate failed due to requested number of devices unavailable for nvidia.com/gpu. "
    "Requested: 2, Available: 1, which is unexpected"
)
SAID: list[tuple[str, str, Ending, tuple[ProvenFact, ...]]] = [
    (
        "UnexpectedAdmissionError",
        DEVICES,
        Ending.TURNED_AWAY,
        (TooFewDevices(resource="nvidia.com/gpu", requested=2, available=1),),
    ),
    ("TopologyAffinityError", "Resources cannot be allocated with Topology locality", Ending.TURNED_AWAY, ()),
    (
        "Evicted",
        f"{REJECTED}The node had condition: [DiskPressure PIDPressure]. ",
        Ending.TURNED_AWAY,
        (ConditionsThen(conditions=("DiskPressure", "PIDPressure")),),
    ),
    (
        "Evicted",
        LOW + USED,
        Ending.EVICTED,
        (
            LowOnResource(resource="memory", threshold="100Mi", available="90Mi"),
            MoreThanRequested(name="app", used="2Gi", requested="1Gi", resource="memory"),
        ),
    ),
    ("Evicted", "The node was low on resource: pids. ", Ending.EVICTED, (LowOnResource(resource="pids"),)),
    (
        "Evicted",
        "Pod web was using 2Gi, request is 1Gi, has larger consumption of memory. ",
        Ending.EVICTED,
        (MoreThanRequested(name="web", is_pod=True, used="2Gi", requested="1Gi", resource="memory"),),
    ),
    (
        "Evicted",
        'Container app exceeded its local ephemeral storage limit "1Gi". ',
        Ending.EVICTED,
        (OverLimit(what="container", name="app", limit="1Gi"),),
    ),
    (
        "Evicted",
        "Pod ephemeral local storage usage exceeds the total limit of containers 1.5Gi. ",
        Ending.EVICTED,
        (OverLimit(what="pod", name="", limit="1.5Gi"),),
    ),
    (
        "Evicted",
        'Usage of EmptyDir volume "tmp" exceeds the limit "1Gi". ',
        Ending.EVICTED,
        (OverLimit(what="emptyDir", name="tmp", limit="1Gi"),),
    ),
    ("Preempting", "Preempted in order to admit critical pod", Ending.PREEMPTED, ()),
    ("DeadlineExceeded", "Pod was active on the node longer than the specified deadline", Ending.OVERDUE, ()),
    ("Terminated", "Pod was terminated in response to imminent node shutdown.", Ending.SHUT_DOWN, ()),
    ("NodeShutdown", f"{REJECTED}Pod was rejected as the node is shutting down.", Ending.TURNED_AWAY, ()),
    ("NodeLost", "", Ending.UNKNOWN, ()),
    ("", "", Ending.UNKNOWN, ()),
]


@pytest.mark.parametrize(("reason", "text", "ending", "facts"), SAID)
def test_each_kind_of_end_is_told_from_the_others(
    reason: str, text: str, ending: Ending, facts: tuple[ProvenFact, ...]
) -> None:
    proof = proof_of(failed(reason, text))
    assert (proof.ending, proof.facts) == (ending, facts)


def test_containers_that_ended_by_themselves_say_how() -> None:
    states = [
        {"name": "app", "state": {"terminated": {"exitCode": 137, "reason": "OOMKilled"}}},
        {"name": "fine", "state": {"terminated": {"exitCode": 0, "reason": "Completed"}}},
        {"name": "runs", "state": {"running": {}}},
    ]
    proof = proof_of(failed("", "", containerStatuses=states))
    assert proof.ending is Ending.BY_ITSELF
    assert proof.facts == (ContainerEnded(name="app", reason="OOMKilled", exit_code=137),)
