"""Facts recovered from the statuses of failed pods."""

from typing import Any

import pytest

from nodewright.documents.formats.decode import decode
from nodewright.model.kubernetes.objects import Pod
from nodewright.model.reasons.container_evidence import (
    ConditionsThen,
    ContainerOOMKilled,
    LowOnResource,
    MoreThanRequested,
    OverLimit,
    PreemptedForCriticalPod,
)
from nodewright.model.reasons.cpu import NotEnoughCPUs, NotEnoughWholeCores, NotWholeCores
from nodewright.model.reasons.predicates import InsufficientResource, OtherPredicate
from nodewright.model.reasons.reason import NodeFeaturesMissing, Reason, SysctlForbidden, kubelet_text
from nodewright.model.reasons.status_evidence import (
    REJECTION_PREFIX,
    FailureCause,
    StatusFact,
    TooFewDevices,
    status_evidence,
)


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
def test_a_fact_is_recovered_from_its_kubelet_text(reason: Reason) -> None:
    kubelet = kubelet_text(reason)
    proof = status_evidence(failed(kubelet.reason, REJECTION_PREFIX + kubelet.message))
    assert proof.facts == (reason,)
    assert proof.cause is FailureCause.REJECTED
    assert proof.message == kubelet.message


LOW = "The node was low on resource: memory. Threshold quantity: 100Mi, available: 90Mi. "
USED = "Container app was using 2Gi, request is 1Gi, has larger consumption of memory. "
DEVICES = (
    "Allocate failed due to requested number of devices unavailable for nvidia.com/gpu. "
    "Requested: 2, Available: 1, which is unexpected"
)
SAID: list[tuple[str, str, FailureCause, tuple[StatusFact, ...]]] = [
    (
        "UnexpectedAdmissionError",
        DEVICES,
        FailureCause.REJECTED,
        (TooFewDevices(resource="nvidia.com/gpu", requested=2, available=1),),
    ),
    (
        "TopologyAffinityError",
        "Resources cannot be allocated with Topology locality",
        FailureCause.REJECTED,
        (),
    ),
    (
        "Evicted",
        f"{REJECTION_PREFIX}The node had condition: [DiskPressure PIDPressure]. ",
        FailureCause.REJECTED,
        (ConditionsThen(conditions=("DiskPressure", "PIDPressure")),),
    ),
    (
        "Evicted",
        LOW + USED,
        FailureCause.EVICTED,
        (
            LowOnResource(resource="memory", threshold="100Mi", available="90Mi"),
            MoreThanRequested(name="app", used="2Gi", requested="1Gi", resource="memory"),
        ),
    ),
    (
        "Evicted",
        "The node was low on resource: pids. ",
        FailureCause.EVICTED,
        (LowOnResource(resource="pids"),),
    ),
    (
        "Evicted",
        "Pod web was using 2Gi, request is 1Gi, has larger consumption of memory. ",
        FailureCause.EVICTED,
        (MoreThanRequested(name="web", is_pod=True, used="2Gi", requested="1Gi", resource="memory"),),
    ),
    (
        "Evicted",
        'Container app exceeded its local ephemeral storage limit "1Gi". ',
        FailureCause.EVICTED,
        (OverLimit(what="container", name="app", limit="1Gi"),),
    ),
    (
        "Evicted",
        "Pod ephemeral local storage usage exceeds the total limit of containers 1.5Gi. ",
        FailureCause.EVICTED,
        (OverLimit(what="pod", name="", limit="1.5Gi"),),
    ),
    (
        "Evicted",
        'Usage of EmptyDir volume "tmp" exceeds the limit "1Gi". ',
        FailureCause.EVICTED,
        (OverLimit(what="emptyDir", name="tmp", limit="1Gi"),),
    ),
    (
        "Preempting",
        "Preempted in order to admit critical pod",
        FailureCause.PREEMPTED,
        (PreemptedForCriticalPod(),),
    ),
    (
        "DeadlineExceeded",
        "Pod was active on the node longer than the specified deadline",
        FailureCause.DEADLINE_EXCEEDED,
        (),
    ),
    (
        "Terminated",
        "Pod was terminated in response to imminent node shutdown.",
        FailureCause.NODE_SHUTDOWN,
        (),
    ),
    (
        "NodeShutdown",
        f"{REJECTION_PREFIX}Pod was rejected as the node is shutting down.",
        FailureCause.REJECTED,
        (),
    ),
    ("NodeLost", "", FailureCause.UNKNOWN, ()),
    ("", "", FailureCause.UNKNOWN, ()),
]


@pytest.mark.parametrize(("reason", "text", "ending", "facts"), SAID)
def test_the_cause_is_derived_from_reason_and_message(
    reason: str, text: str, ending: FailureCause, facts: tuple[StatusFact, ...]
) -> None:
    proof = status_evidence(failed(reason, text))
    assert (proof.cause, proof.facts) == (ending, facts)


def test_failed_containers_are_facts() -> None:
    states = [
        {"name": "app", "state": {"terminated": {"exitCode": 137, "reason": "OOMKilled"}}},
        {"name": "fine", "state": {"terminated": {"exitCode": 0, "reason": "Completed"}}},
        {"name": "runs", "state": {"running": {}}},
    ]
    proof = status_evidence(failed("", "", containerStatuses=states))
    assert proof.cause is FailureCause.CONTAINERS_TERMINATED
    assert proof.facts == (ContainerOOMKilled(name="app", exit_code=137),)


@pytest.mark.parametrize(
    "text",
    [
        "Node didn't have enough resource: cpu, requested: {}, used: {}, capacity: {}",
        "not enough cpus available to satisfy request: requested={}, available={}",
        "SMT Alignment Error: requested {} cpus not multiple cpus per core = {}",
        "SMT Alignment Error: not enough free physical CPUs: available physical CPUs = {}, requested CPUs = {}, CPUs per core = {}",
        "requested number of devices unavailable for a/b. Requested: {}, Available: {}",
    ],
)
def test_numbers_of_any_length_are_read(text: str) -> None:
    """Kubernetes writes none beyond 64 bits, but who may write a status may write anything."""
    causes = status_evidence(
        failed("UnexpectedAdmissionError", f"Pod was rejected: {text.replace('{}', '9' * 5000)}")
    )
    assert str(10**20) in str(causes)
