"""Quota usage, with worked examples."""

import pytest
from tests.unit.engine.admission.quota.objects import NOW, a_quota, a_service, a_term, short

from nodewright.documents.formats.decode import decode
from nodewright.engine.admission.quota.evaluator import (
    SERVICE_EVALUATOR,
    NamespaceObjects,
    object_count_evaluator,
    usage_of,
    with_calculated_usage,
)
from nodewright.engine.admission.quota.object_usage import pod_evaluator
from nodewright.engine.core.requests.resource_defaults import with_defaults
from nodewright.model.kubernetes.api_request import GroupResource
from nodewright.model.kubernetes.cluster_objects import (
    PartialObjectMetadata,
    ResourceQuota,
    ScopeTerm,
)
from nodewright.model.kubernetes.objects import Pod
from nodewright.predict.python_sources import load_pods
from nodewright.testing.objects import a_pod

COMPUTE = a_quota("limits.cpu=1 limits.memory=1Gi requests.cpu=1 requests.memory=1Gi pods=10")


def with_init_containers() -> list[Pod]:
    """The pods of the example, as the API server stores them."""
    return [with_defaults(pod) for pod in load_pods("examples/requests/init-containers.yaml")]


# Each of the three pods alone in its namespace.
ALONE = """
    init-decides              ->  limits.memory=430Mi limits.cpu=210m
    greatest-init-decides     ->  limits.memory=450Mi limits.cpu=200m
    sidecars-run-beside-main  ->  limits.memory=730Mi limits.cpu=200m
"""


@pytest.mark.parametrize("line", ALONE.strip().splitlines())
def test_init_containers_count_as_much_as_is_in_use_at_any_time(line: str) -> None:
    name, _, used = line.partition("->")
    alone = [pod for pod in with_init_containers() if pod.metadata.name == name.strip()]
    document = with_calculated_usage(COMPUTE, [NamespaceObjects(pod_evaluator(NOW), alone)]).status.used
    assert " ".join(f"{each}={document[each]}" for each in ("limits.memory", "limits.cpu")) == used.strip()
    # What has a limit and no request requests its limit.
    assert document["requests.memory"] == document["limits.memory"]


def test_pods_add_up() -> None:
    together = with_calculated_usage(COMPUTE, [NamespaceObjects(pod_evaluator(NOW), with_init_containers())])
    assert short(together.status.used) == (
        "limits.cpu=610m limits.memory=1610Mi pods=3 requests.cpu=610m requests.memory=1610Mi"
    )


def test_objects_count_that_match_all_the_terms() -> None:
    some = [
        a_pod("low", "1/1Gi", priorityClassName="low"),
        a_pod("high", "2/1Gi", priorityClassName="high"),
        a_pod("timed", "4/1Gi", priorityClassName="high", activeDeadlineSeconds=5),
        a_pod("plain", "8/1Gi"),
    ]

    def cpu(*terms: str) -> str:
        read = [decode(a_term(term), ScopeTerm) for term in terms]
        return str(usage_of(pod_evaluator(NOW), some, ["cpu"], read)["cpu"])

    assert cpu() == "15"
    assert cpu("PriorityClass In high") == "6"
    assert cpu("PriorityClass In high", "NotTerminating Exists") == "2"
    assert cpu("PriorityClass NotIn high", "PriorityClass Exists") == "1"
    # Nothing is counted, and nobody is told.
    assert cpu("PriorityClass In") == "0"


def test_a_status_names_what_is_hard_and_known() -> None:
    hard = {"services": "5", "services.nodeports": "1", "configmaps": "9", "pods": "1", "old": "1"}
    status = {"hard": {"secrets": "1"}, "used": {"secrets": "1", "services": "7", "old": "4"}}
    quota = decode({"spec": {"hard": hard}, "status": status}, ResourceQuota)
    resource_quota = with_calculated_usage(
        quota,
        [
            NamespaceObjects(SERVICE_EVALUATOR, [a_service("NodePort", 0, 0), a_service()]),
            NamespaceObjects(
                object_count_evaluator(GroupResource("configmaps")), [PartialObjectMetadata()] * 3
            ),
            NamespaceObjects(object_count_evaluator(GroupResource("secrets")), [PartialObjectMetadata()]),
        ],
    )
    assert resource_quota.status.hard == quota.spec.hard
    # Nobody looked at pods; what nobody counts keeps its last figure.
    assert "pods" not in resource_quota.status.used
    assert short(resource_quota.status.used) == "configmaps=3 old=4 services=2 services.nodeports=2"
