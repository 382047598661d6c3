from typing import Any

import pytest
from tests.unit.engine.admission.quota.objects import NOW, a_term, short

from nodewright.documents.formats.decode import decode
from nodewright.engine.admission.quota.object_usage import (
    is_charged_request,
    is_pod_quota_resource,
    matches_pod_scope,
    pod_usage,
    unspecified_pod_resources,
)
from nodewright.model.kubernetes.api_request import APIRequest, Operation, create_request, update_request
from nodewright.model.kubernetes.cluster_objects import ScopeTerm
from nodewright.model.kubernetes.objects import Pod
from nodewright.model.reasons.quota import Unspecified
from nodewright.testing.objects import a_pod, container, pod, sidecar

# requests | limits of a pod's container  ->  what the pod is charged beside count/pods=1 pods=1
CHARGED = """
    cpu=1            | -                  ->  cpu=1 requests.cpu=1
    -                | cpu=1 memory=1Gi   ->  limits.cpu=1 limits.memory=1Gi
    memory=1Gi       | memory=2Gi         ->  limits.memory=2Gi memory=1Gi requests.memory=1Gi
    ephemeral-storage=1 | ephemeral-storage=2 ->  ephemeral-storage=1 limits.ephemeral-storage=2 requests.ephemeral-storage=1
    hugepages-2Mi=4Mi | hugepages-2Mi=4Mi ->  hugepages-2Mi=4Mi requests.hugepages-2Mi=4Mi
    nvidia.com/gpu=2 | nvidia.com/gpu=2   ->  requests.nvidia.com/gpu=2
    deviceclass.resource.kubernetes.io/gpu=1 | - ->  requests.deviceclass.resource.kubernetes.io/gpu=1
    kubernetes.io/batch=1 | -             ->  -
    storage=1        | storage=1          ->  -
"""


@pytest.mark.parametrize("line", CHARGED.strip().splitlines())
def test_a_pod_is_charged_its_requests_and_limits(line: str) -> None:
    asked, _, charged = line.partition("->")
    requests, limits = (part.strip().removeprefix("-") for part in asked.split("|"))
    result = pod_usage(a_pod("web", requests, limits), now=NOW)
    rest = {name: amount for name, amount in result.items() if name not in ("pods", "count/pods")}
    assert len(result) == len(rest) + 2
    assert short(rest) == charged.strip()
    assert all(map(is_pod_quota_resource, result))


def test_a_pod_is_charged_with_overhead_pod_level_and_resizes() -> None:
    resizing = {"containerStatuses": [{"name": "main", "resources": {"requests": {"cpu": "3"}}}]}
    level = {"requests": {"memory": "5Gi"}}
    whole = a_pod("web", "1/1Gi", overhead={"cpu": "100m"}, resources=level, status=resizing)
    assert short(pod_usage(whole, now=NOW)) == (
        "count/pods=1 cpu=3100m memory=5Gi pods=1 requests.cpu=3100m requests.memory=5Gi"
    )


# phase | deleted at | grace period in seconds  ->  whether it still uses anything at noon
ALIVE = """
    Running   |          |       ->  yes
    Pending   |          |       ->  yes
    Succeeded |          |       ->  no
    Failed    |          |       ->  no
    Running   | 11:59:29 | 30    ->  no
    Running   | 11:59:30 | 30    ->  yes
    Running   | 11:00:00 |       ->  yes
    Running   | 12:00:01 | 0     ->  yes
    Running   | 11:59:59 | 10000000000 -> no
"""


@pytest.mark.parametrize("line", ALIVE.strip().splitlines())
def test_a_pod_is_charged_until_it_ends_or_its_grace_period_does(line: str) -> None:
    case, _, answer = line.partition("->")
    phase, time, grace = (part.strip() for part in case.split("|"))
    metadata: dict[str, Any] = {"deletionTimestamp": f"2026-01-31T{time}Z"} if time else {}
    if grace:
        # Ten thousand million seconds are more nanoseconds than 64 bits hold: they become negative.
        metadata["deletionGracePeriodSeconds"] = int(grace)
    result = pod_usage(a_pod("web", "1/1Gi", metadata=metadata, status={"phase": phase}), now=NOW)
    assert ("pods" in result) is (answer.strip() == "yes")
    assert str(result["count/pods"]) == "1"


# resource of a quota, and whether pods are charged for it
NAMES = """
    pods                        yes
    count/pods                  yes
    cpu                         yes
    limits.ephemeral-storage    yes
    hugepages-1Gi               yes
    requests.hugepages-2Mi      yes
    limits.hugepages-2Mi        no
    requests.nvidia.com/gpu     yes
    nvidia.com/gpu              no
    limits.nvidia.com/gpu       no
    requests.storage            no
    requests.deviceclass.resource.kubernetes.io/gpu  yes
    requests.kubernetes.io/x    no
    services                    no
    count/services              no
"""


@pytest.mark.parametrize("line", NAMES.strip().splitlines())
def test_pods_are_charged_for_resources_by_name(line: str) -> None:
    name, answer = line.split()
    assert is_pod_quota_resource(name) is (answer == "yes")


# ---------------------------------------------------------------- what must be specified


def test_all_containers_must_say_what_a_quota_on_cpu_or_memory_asks() -> None:
    shy = pod(
        container("b", "cpu=1", "memory=1"),
        container("a", "memory=0"),
        init=(sidecar("log", "1/1", "1/1"), container("setup")),
    )
    names = ["requests.cpu", "memory", "limits.memory", "pods", "requests.ephemeral-storage"]
    assert unspecified_pod_resources(names, shy) == (
        Unspecified(resource="limits.memory", containers=("a", "setup")),
        Unspecified(resource="memory", containers=("b", "setup")),
        Unspecified(resource="requests.cpu", containers=("a", "setup")),
    )
    assert unspecified_pod_resources(["pods", "limits.ephemeral-storage"], shy) == ()


def test_anything_at_the_pod_level_is_enough() -> None:
    assert unspecified_pod_resources(["requests.cpu"], pod(container("app"), whole="memory=1Gi")) == ()
    assert unspecified_pod_resources(["requests.cpu"], pod(container("app"), whole="nvidia.com/gpu=1")) != ()


# ---------------------------------------------------------------- requests

WEB, TIMED = a_pod(), a_pod(activeDeadlineSeconds=60)


@pytest.mark.parametrize(
    ("request_", "is_charged"),
    [
        (create_request(WEB), True),
        (update_request(WEB, WEB, "resize"), True),
        (APIRequest(operation=Operation.UPDATE, object=WEB, subresource="resize"), True),
        (update_request(WEB, TIMED), True),
        (update_request(TIMED, WEB), True),
        (update_request(TIMED, a_pod(activeDeadlineSeconds=30)), False),
        (update_request(WEB, TIMED, "status"), False),
        (APIRequest(operation=Operation.UPDATE, object=WEB), False),
        (APIRequest(operation=Operation.CREATE, object=WEB, subresource="binding"), False),
        (APIRequest(operation=Operation.CREATE, object=WEB, subresource="resize"), False),
        (APIRequest(operation=Operation.DELETE, object=WEB), False),
    ],
)
def test_creations_resizes_and_changes_of_the_terminating_scope_are_charged(
    request_: APIRequest[Pod], is_charged: bool
) -> None:
    assert is_charged_request(request_) is is_charged


# ---------------------------------------------------------------- scopes


def affine(field: str, when: str, term: dict[str, Any]) -> Pod:
    weighted = when.startswith("preferred")
    return a_pod(affinity={field: {when: [{"podAffinityTerm": term} if weighted else term]}})


REQUIRED = "requiredDuringSchedulingIgnoredDuringExecution"
PREFERRED = "preferredDuringSchedulingIgnoredDuringExecution"
IN_SCOPE: list[tuple[str, Pod, bool]] = [
    ("Terminating Exists", a_pod(activeDeadlineSeconds=0), True),
    ("Terminating Exists", a_pod(activeDeadlineSeconds=-1), False),
    ("Terminating Exists", a_pod(), False),
    ("NotTerminating Exists", a_pod(), True),
    ("NotTerminating DoesNotExist", a_pod(), True),
    ("BestEffort Exists", a_pod(), True),
    ("BestEffort Exists", a_pod("web", "1/1"), False),
    ("NotBestEffort Exists", a_pod("web", "1/1"), True),
    ("NotBestEffort Exists", a_pod("web", "1/1", status={"qosClass": "BestEffort"}), False),
    ("PriorityClass Exists", a_pod(priorityClassName="low"), True),
    ("PriorityClass Exists", a_pod(priority=7), False),
    ("PriorityClass In low,high", a_pod(priorityClassName="low"), True),
    ("PriorityClass NotIn low", a_pod(), True),
    ("CrossNamespacePodAffinity Exists", a_pod(), False),
    ("CrossNamespacePodAffinity Exists", a_pod(affinity={"nodeAffinity": {}}), False),
    ("CrossNamespacePodAffinity Exists", affine("podAffinity", REQUIRED, {"topologyKey": "x"}), False),
    ("CrossNamespacePodAffinity Exists", affine("podAffinity", REQUIRED, {"namespaces": ["a"]}), True),
    ("CrossNamespacePodAffinity Exists", affine("podAffinity", REQUIRED, {"namespaces": []}), False),
    ("CrossNamespacePodAffinity Exists", affine("podAffinity", PREFERRED, {"namespaceSelector": {}}), True),
    (
        "CrossNamespacePodAffinity Exists",
        affine("podAntiAffinity", REQUIRED, {"namespaceSelector": {}}),
        True,
    ),
    ("CrossNamespacePodAffinity Exists", affine("podAntiAffinity", PREFERRED, {"namespaces": ["a"]}), True),
    ("CrossNamespacePodAffinity Exists", affine("podAntiAffinity", PREFERRED, {"topologyKey": "x"}), False),
    ("VolumeAttributesClass Exists", a_pod(), False),
]


@pytest.mark.parametrize(("words", "item", "is_in"), IN_SCOPE)
def test_pods_are_in_scopes(words: str, item: Pod, is_in: bool) -> None:
    assert matches_pod_scope(decode(a_term(words), ScopeTerm), item) is is_in
