"""Quotas at the door: each case with what the API server says."""

from typing import Any

import pytest
from tests.unit.engine.admission.quota.objects import NOW, a_quota, a_service, a_term, a_volume_claim, short

from nodewright.documents.formats.decode import decode
from nodewright.engine.admission.quota.evaluator import SERVICE_EVALUATOR, object_count_evaluator
from nodewright.engine.admission.quota.object_usage import VOLUME_CLAIM_EVALUATOR, pod_evaluator
from nodewright.engine.admission.quota.quota_admission import (
    BeyondQuota,
    QuotaCharge,
    QuotaDelta,
    WithinQuota,
    quota_delta,
    quota_verdict,
    with_delta,
)
from nodewright.model.kubernetes.api_request import (
    APIRequest,
    GroupResource,
    Operation,
    create_request,
    update_request,
)
from nodewright.model.kubernetes.cluster_objects import (
    LimitedResource,
    PartialObjectMetadata,
    ResourceQuota,
)
from nodewright.model.kubernetes.objects import Pod
from nodewright.model.reasons.quota import (
    NegativeUsage,
    NoQuotaForResources,
    NoQuotaForScopes,
    Overrun,
    QuotaExceeded,
    quota_error,
)
from nodewright.model.values.quantity import Quantity
from nodewright.testing.objects import a_pod, amounts, container, pod

PODS = pod_evaluator(NOW)


def admission_text(
    request: APIRequest[Pod], *quotas: ResourceQuota, limited: tuple[LimitedResource, ...] = ()
) -> str:
    """What the API server says to the request; if nothing, what each quota has in use then."""
    verdict = quota_verdict(request, PODS, quotas, limited)
    if isinstance(verdict, BeyondQuota):
        return quota_error(PODS.resource, request.object.metadata, verdict.because)
    return " | ".join(short(quota.status.used) for quota in verdict.quotas)


def resized(old: str, new: str, version: str = "7") -> APIRequest[Pod]:
    """A pod of these requests that is to have others."""
    meta = {"resourceVersion": version}
    return update_request(a_pod("web", old, metadata=meta), a_pod("web", new, metadata=meta), "resize")


# ---------------------------------------------------------------- creations

# what is hard | in use | the pod's requests  ->  what is said, or in use then
ROOM = """
    pods=2               | pods=1            | 1/1Gi  ->  pods=2
    pods=1               | pods=1            | 1/1Gi  ->  pods "web" is forbidden: exceeded quota: quota, requested: pods=1, used: pods=1, limited: pods=1
    requests.cpu=1       | requests.cpu=1m   | 999m/1 ->  requests.cpu=1
    requests.cpu=1       | requests.cpu=1m   | 1/1    ->  pods "web" is forbidden: exceeded quota: quota, requested: requests.cpu=1, used: requests.cpu=1m, limited: requests.cpu=1
    memory=1Gi cpu=1     | memory=1Gi cpu=1  | 1/1Gi  ->  pods "web" is forbidden: exceeded quota: quota, requested: cpu=1,memory=1Gi, used: cpu=1,memory=1Gi, limited: cpu=1,memory=1Gi
    cpu=2 limits.ephemeral-storage=1 | cpu=1 limits.ephemeral-storage=9 | 1/1Gi ->  cpu=2 limits.ephemeral-storage=9
    cpu=2 memory=1Gi     | cpu=1             | 1/1Gi  ->  pods "web" is forbidden: status unknown for quota: quota, resources: cpu,memory
    services=1           | services=1        | 1/1Gi  ->  services=1
    limits.cpu=1         | limits.cpu=0      | 1/1Gi  ->  pods "web" is forbidden: failed quota: quota: must specify limits.cpu for: main
"""


@pytest.mark.parametrize("line", ROOM.strip().splitlines())
def test_a_pod_gets_in_where_what_it_is_charged_for_has_room(line: str) -> None:
    case, _, answer = line.partition("->")
    hard, used, requests = (part.strip() for part in case.split("|"))
    assert admission_text(create_request(a_pod("web", requests)), a_quota(hard, used)) == answer.strip()


def test_a_shortage_carries_its_numbers() -> None:
    verdict = quota_verdict(
        create_request(a_pod("web", "2/1Gi")), PODS, [a_quota("cpu=3 pods=9", "cpu=2 pods=0")]
    )
    two = Quantity.of(2)
    overrun = Overrun(resource="cpu", requested=two, used=two, limited=Quantity.of(3))
    assert verdict == BeyondQuota(because=QuotaExceeded(quota="quota", overruns=(overrun,)))
    assert overrun.missing == Quantity.of(1)
    unknown = Overrun(resource="x", requested=two, used=None, limited=Quantity.of(1))
    assert unknown.missing == Quantity.of(1)


def test_every_quota_is_charged_what_it_names() -> None:
    quotas = [
        a_quota("pods=1", name="a"),
        a_quota("services=1", name="b"),
        a_quota("cpu=5 memory=5Gi", name="c"),
    ]
    verdict = quota_verdict(create_request(a_pod("web", "1/1Gi")), PODS, quotas)
    assert isinstance(verdict, WithinQuota)
    assert [short(quota.status.used) for quota in verdict.quotas] == ["pods=1", "-", "cpu=1 memory=1Gi"]
    assert verdict.charges == (
        QuotaCharge(quota="a", requested=amounts("pods=1"), used=amounts("pods=1")),
        QuotaCharge(quota="c", requested=amounts("cpu=1 memory=1Gi"), used=amounts("cpu=1 memory=1Gi")),
    )


def test_the_first_quota_without_room_is_named() -> None:
    quotas = [a_quota("pods=1"), a_quota("pods=0", name="none"), a_quota("pods=0", name="neither")]
    assert "exceeded quota: none, " in admission_text(create_request(a_pod()), *quotas)


def test_what_must_be_specified_is_asked_before_there_is_talk_of_room() -> None:
    shy = pod(container("b", "memory=1"), container("a"), name="web")
    full, strict = a_quota("pods=0"), a_quota("requests.cpu=1 memory=1Gi", name="strict")
    assert admission_text(create_request(shy), full, strict) == (
        'pods "web" is forbidden: failed quota: strict: must specify memory for: a; requests.cpu for: a,b'
    )


def test_quotas_for_other_scopes_let_a_pod_pass() -> None:
    best_effort = a_quota("pods=0 requests.cpu=0", scopes="BestEffort")
    assert admission_text(create_request(a_pod("web", "1/1Gi")), best_effort) == "-"
    assert "exceeded quota" in admission_text(create_request(a_pod()), a_quota("pods=0", scopes="BestEffort"))
    high = a_quota("pods=0", terms=("PriorityClass In high",))
    assert admission_text(create_request(a_pod(priorityClassName="low")), high) == "-"
    assert "exceeded quota" in admission_text(create_request(a_pod(priorityClassName="high")), high)


def test_a_quota_that_cannot_be_read_keeps_everybody_out() -> None:
    assert admission_text(create_request(a_pod()), a_quota("services=1", terms=("PriorityClass In",))) == (
        "error matching scopes of quota quota, err: error on matching scope {PriorityClass In []}: failed to "
        "parse and convert selector: values: Invalid value: null: for 'in', 'notin' operators, values set can't "
        "be empty"
    )


def test_nobody_uses_less_than_nothing() -> None:
    minus_one = create_request(a_pod("web", "cpu=-1"))
    assert admission_text(minus_one) == (
        'pods "web" is forbidden: quota usage is negative for resource(s): cpu,requests.cpu'
    )
    verdict = quota_verdict(minus_one, PODS, [])
    minus = Quantity.of(-1)
    assert verdict == BeyondQuota(because=NegativeUsage(usage=(("cpu", minus), ("requests.cpu", minus))))


def test_other_objects_are_charged_one_each() -> None:
    kind = object_count_evaluator(GroupResource("deployments", "apps"))
    item = decode({"metadata": {"name": "dep"}}, PartialObjectMetadata)
    text = "count/deployments.apps=1"
    verdict = quota_verdict(create_request(item), kind, [a_quota(text, text)])
    assert isinstance(verdict, BeyondQuota)
    assert quota_error(kind.resource, item.metadata, verdict.because) == (
        f'deployments.apps "dep" is forbidden: exceeded quota: quota, requested: {text}, used: {text}, limited: {text}'
    )


# ---------------------------------------------------------------- updates


def test_an_update_is_charged_its_increase() -> None:
    quota = a_quota("cpu=3 memory=9Gi pods=1", "cpu=2 memory=5Gi pods=1")
    assert admission_text(resized("1/2Gi", "2/1Gi"), quota) == "cpu=3 memory=5Gi pods=1"
    assert "requested: cpu=1001m, used: cpu=2, limited: cpu=3" in admission_text(
        resized("1/2Gi", "2001m/1Gi"), quota
    )


def test_an_update_without_an_increase_passes_an_exceeded_quota() -> None:
    assert admission_text(resized("2/1Gi", "1/1Gi"), a_quota("cpu=1", "cpu=5")) == "cpu=5"


def test_a_quota_that_the_object_was_not_for_before_is_charged_in_full() -> None:
    def web(**spec: Any) -> Pod:
        return a_pod("web", "2/1Gi", metadata={"resourceVersion": "7"}, **spec)

    quotas = (a_quota("cpu=9", "cpu=2"), a_quota("cpu=9", scopes="Terminating"))
    assert admission_text(update_request(web(), web(activeDeadlineSeconds=5)), *quotas) == "cpu=2 | cpu=2"
    assert admission_text(update_request(web(activeDeadlineSeconds=5), web()), *quotas) == "cpu=2 | -"


def test_an_object_without_a_version_is_made_by_its_update() -> None:
    assert admission_text(resized("1/1Gi", "2/1Gi", version=""), a_quota("cpu=9", "cpu=1")) == "cpu=3"


def test_an_update_needs_the_object_as_it_was() -> None:
    request = APIRequest(operation=Operation.UPDATE, object=a_pod(), subresource="resize")
    assert admission_text(request) == (
        'pods "web" is forbidden: unable to get previous usage since prior version of object was not found'
    )


def test_services_are_charged_for_a_change_of_type() -> None:
    quota = a_quota("services=1 services.nodeports=1", "services=1 services.nodeports=0")
    request = update_request(a_service("ClusterIP", 0, version="7"), a_service("NodePort", 0, version="8"))
    verdict = quota_verdict(request, SERVICE_EVALUATOR, [quota])
    assert isinstance(verdict, WithinQuota)
    assert short(verdict.quotas[0].status.used) == "services=1 services.nodeports=1"


def test_the_status_of_a_volume_claim_is_charged_even_beyond_the_quota() -> None:
    quota = a_quota("requests.storage=1Gi", "requests.storage=1Gi")
    old = a_volume_claim(metadata={"resourceVersion": "7"})
    new = a_volume_claim(status={"allocatedResources": {"storage": "3Gi"}})
    verdict = quota_verdict(update_request(old, new, "status"), VOLUME_CLAIM_EVALUATOR, [quota])
    assert isinstance(verdict, WithinQuota)
    assert short(verdict.quotas[0].status.used) == "requests.storage=3Gi"
    assert isinstance(quota_verdict(update_request(old, new), VOLUME_CLAIM_EVALUATOR, [quota]), BeyondQuota)


def test_requests_that_quotas_do_not_look_at_pass() -> None:
    full = a_quota("pods=0", "pods=5")
    verdict = quota_verdict(update_request(a_pod(), a_pod()), PODS, [full])
    assert verdict == WithinQuota(quotas=(full,), handled=False)


# ---------------------------------------------------------------- what may not go without a quota


def limited(contains: str = "", *terms: str, resource: str = "pods", group: str = "") -> LimitedResource:
    document = {
        "resource": resource,
        "apiGroup": group,
        "matchContains": contains.split(),
        "matchScopes": [a_term(term) for term in terms],
    }
    return decode(document, LimitedResource)


def test_limited_resources_need_a_quota_that_names_them() -> None:
    web = create_request(a_pod("web", "cpu=1 memory=0"))
    forbidden = 'pods "web" is forbidden: insufficient quota to consume: '
    assert admission_text(web, limited=(limited("cpu memory"),)) == forbidden + "cpu,requests.cpu"
    assert admission_text(web, a_quota("cpu=5"), limited=(limited("cpu"),)) == forbidden + "requests.cpu"
    assert (
        admission_text(web, a_quota("cpu=5 requests.cpu=5"), limited=(limited("cpu"),))
        == "cpu=1 requests.cpu=1"
    )
    for other in (limited("cpu", resource="services"), limited("cpu", group="apps")):
        assert admission_text(web, a_quota("pods=5"), limited=(other,)) == "pods=1"
    verdict = quota_verdict(web, PODS, [], [limited("requests.cpu")])
    assert verdict == BeyondQuota(because=NoQuotaForResources(usage=(("requests.cpu", Quantity.of(1)),)))


def test_limited_scopes_need_a_quota_for_the_scope() -> None:
    high = create_request(a_pod(priorityClassName="high"))
    only_high = limited("", "PriorityClass In high", "Terminating Exists")
    assert admission_text(high, a_quota("pods=5"), limited=(only_high,)) == (
        "insufficient quota to match these scopes: [{PriorityClass In [high]}]"
    )
    assert admission_text(create_request(a_pod()), a_quota("pods=5"), limited=(only_high,)) == "pods=1"
    assert (
        admission_text(high, a_quota("pods=5", terms=("PriorityClass Exists",)), limited=(only_high,))
        == "pods=1"
    )
    verdict = quota_verdict(high, PODS, [], [only_high])
    assert verdict == BeyondQuota(because=NoQuotaForScopes(terms=only_high.match_scopes[:1]))


def test_a_quota_covers_a_scope_even_if_it_is_not_for_the_pod() -> None:
    high = create_request(a_pod(priorityClassName="high"))
    # It names nothing that pods are charged for, and wants a deadline besides.
    elsewhere = a_quota("services=5", scopes="Terminating", terms=("PriorityClass Exists",))
    assert admission_text(high, elsewhere, limited=(limited("", "PriorityClass In high"),)) == "-"


def test_limited_scopes_that_cannot_be_read_open_the_door() -> None:
    assert (
        admission_text(create_request(a_pod()), a_quota("pods=0"), limited=(limited("", "PriorityClass In"),))
        == "-"
    )


def test_an_update_needs_a_quota_only_for_an_increase() -> None:
    cpu = (limited("cpu"),)
    assert admission_text(resized("2/1Gi", "1/1Gi"), limited=cpu) == ""
    assert "insufficient quota" in admission_text(resized("1/1Gi", "2/1Gi"), limited=cpu)
    assert "insufficient quota" in admission_text(resized("2/1Gi", "1/1Gi", version=""), limited=cpu)


# ---------------------------------------------------------------- bills


def test_pods_that_are_alike_are_billed_once() -> None:
    quotas: tuple[ResourceQuota, ...] = (a_quota("services=1"), a_quota("pods=3 cpu=9", name="mine"))
    bill = quota_delta(create_request(a_pod("web", "2/1Gi")), PODS, quotas)
    assert bill == QuotaDelta(items=((1, amounts("pods=1 cpu=2")),))
    in_use = []
    while isinstance(verdict := with_delta(bill, quotas), WithinQuota):
        quotas = verdict.quotas
        in_use.append(str(quotas[1].status.used["cpu"]))
    assert in_use == ["2", "4", "6"]
    assert isinstance(verdict.because, QuotaExceeded)
    assert [overrun.resource for overrun in verdict.because.overruns] == ["pods"]
