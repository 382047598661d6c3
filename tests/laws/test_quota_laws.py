"""Quotas: usage adds up, updates are charged what they add, and nothing gets in that there is no room for."""

from hypothesis import given
from hypothesis import strategies as st
from msgspec.structs import replace

from nodewright.engine.admission.quota.evaluator import (
    NamespaceObjects,
    total,
    usage_of,
    with_calculated_usage,
)
from nodewright.engine.admission.quota.object_usage import pod_evaluator
from nodewright.engine.admission.quota.quota_admission import (
    BeyondQuota,
    WithinQuota,
    quota_delta,
    quota_verdict,
    with_delta,
)
from nodewright.model.kubernetes.api_request import create_request, update_request
from nodewright.model.kubernetes.cluster_objects import (
    ResourceQuota,
    ResourceQuotaSpec,
    ResourceQuotaStatus,
    ScopeTerm,
)
from nodewright.model.kubernetes.objects import Container, Pod, ResourceList
from nodewright.model.reasons.quota import MustSpecify, QuotaExceeded
from nodewright.model.values.instant import Instant
from nodewright.model.values.quantity import ZERO, Quantity
from nodewright.testing.objects import container, pod, sidecar

KIND = pod_evaluator(Instant(0))
NAMES = (
    "pods",
    "count/pods",
    "cpu",
    "memory",
    "requests.cpu",
    "limits.cpu",
    "limits.memory",
    "requests.ephemeral-storage",
    "hugepages-2Mi",
    "requests.example.com/device",
    "services",
)
SCOPES = ("BestEffort", "NotBestEffort", "Terminating", "NotTerminating", "PriorityClass")
TERMS = st.sampled_from(SCOPES).map(lambda scope: ScopeTerm(scope_name=scope, operator="Exists"))


# Ready-made parts: drawing whole pods takes longer than charging them.
CONTAINERS = (
    container("some", "cpu=250m memory=1Gi", "cpu=1 memory=1Gi"),
    container("much", "cpu=2 memory=1.5Gi hugepages-2Mi=4Mi", "cpu=2 memory=2Gi hugepages-2Mi=4Mi"),
    container(
        "device", "cpu=0 memory=64Mi example.com/device=1", "cpu=100m memory=64Mi example.com/device=1"
    ),
    container("disk", "cpu=1m memory=0 ephemeral-storage=1G", "cpu=1m memory=1M"),
    container("nothing"),
)
SIDECARS = (sidecar("log", "cpu=100m memory=64Mi", "cpu=100m memory=128Mi"), *CONTAINERS)
AMOUNTS = tuple(map(Quantity.parse, ("0", "1", "2", "3", "250m", "2500m", "1Gi", "2.5Gi", "100G")))
LEAST = Quantity.parse("1n")
USED = (ZERO, ZERO, *AMOUNTS)


def a_pod(
    containers: list[Container], init: list[Container], deadline: int | None, priority_class: str
) -> Pod:
    bare = pod(*containers, init=tuple(init))
    spec = replace(bare.spec, active_deadline_seconds=deadline, priority_class_name=priority_class)
    return replace(bare, metadata=replace(bare.metadata, resource_version="7"), spec=spec)


PODS = st.builds(
    a_pod,
    st.lists(st.sampled_from(CONTAINERS), max_size=2),
    st.lists(st.sampled_from(SIDECARS), max_size=2),
    st.sampled_from((None, 60)),
    st.sampled_from(("", "high")),
)


def a_quota(hard: ResourceList, used: list[Quantity], scopes: list[str]) -> ResourceQuota:
    status = ResourceQuotaStatus(hard=hard, used=dict(zip(hard, used, strict=False)))
    return ResourceQuota(spec=ResourceQuotaSpec(hard=hard, scopes=tuple(scopes)), status=status)


# All their usage is known, some of it beyond what is hard.
QUOTAS = st.builds(
    a_quota,
    st.dictionaries(st.sampled_from(NAMES), st.sampled_from(AMOUNTS), min_size=1, max_size=4),
    st.lists(st.sampled_from(USED), min_size=4, max_size=4),
    st.lists(st.sampled_from(SCOPES), max_size=1),
)


def together(items: list[Pod], terms: list[ScopeTerm]) -> ResourceList:
    return usage_of(KIND, items, NAMES, terms)


@given(st.lists(PODS, max_size=3), st.lists(PODS, max_size=3), st.lists(TERMS, max_size=2))
def test_usage_adds_up(some: list[Pod], more: list[Pod], terms: list[ScopeTerm]) -> None:
    assert together([*some, *more], terms) == total(together(some, terms), together(more, terms))


@given(PODS, st.lists(QUOTAS, max_size=3))
def test_what_gets_in_keeps_within_all_that_it_is_charged_for(one: Pod, held: list[ResourceQuota]) -> None:
    verdict = quota_verdict(create_request(one), KIND, held)
    if isinstance(verdict, BeyondQuota):
        return
    for before, after in zip(held, verdict.quotas, strict=True):
        for name, amount in after.status.used.items():
            assert amount == before.status.used[name] or amount <= after.status.hard[name]


@given(PODS, st.lists(QUOTAS, min_size=1, max_size=3))
def test_a_refusal_is_exact(one: Pod, held: list[ResourceQuota]) -> None:
    """With just what is missing the quota has room, with any less it has not."""
    verdict = quota_verdict(create_request(one), KIND, held)
    if isinstance(verdict, WithinQuota) or not isinstance(verdict.because, QuotaExceeded):
        return
    (full, *_) = (
        quota for quota in held if isinstance(quota_verdict(create_request(one), KIND, [quota]), BeyondQuota)
    )
    enough = {
        **full.status.hard,
        **{over.resource: over.limited + over.missing for over in verdict.because.overruns},
    }

    def refused(hard: ResourceList) -> bool:
        quota = replace(full, status=replace(full.status, hard=hard))
        return isinstance(quota_verdict(create_request(one), KIND, [quota]), BeyondQuota)

    assert not refused(enough)
    for over in verdict.because.overruns:
        assert over.missing > ZERO
        assert refused({**enough, over.resource: enough[over.resource] - LEAST})


@given(PODS, PODS, st.lists(QUOTAS, max_size=3))
def test_an_update_is_charged_its_increase(old: Pod, new: Pod, held: list[ResourceQuota]) -> None:
    verdict = quota_verdict(update_request(old, new, "resize"), KIND, held)
    if isinstance(verdict, BeyondQuota):
        return
    was, now = KIND.usage(old), KIND.usage(new)
    for before, after in zip(held, verdict.quotas, strict=True):
        both = KIND.matches_quota(before, old) and KIND.matches_quota(before, new)
        for name in before.status.hard:
            added = after.status.used[name] - before.status.used[name]
            more = now.get(name, ZERO) - (was.get(name, ZERO) if both else ZERO)
            assert added == (max(more, ZERO) if KIND.matches_quota(before, new) else ZERO)


@given(PODS, st.lists(QUOTAS, max_size=3))
def test_an_update_to_the_same_changes_nothing_and_is_never_without_room(
    one: Pod, held: list[ResourceQuota]
) -> None:
    verdict = quota_verdict(update_request(one, one, "resize"), KIND, held)
    if isinstance(verdict, WithinQuota):
        assert verdict.quotas == tuple(held)
    else:
        assert isinstance(verdict.because, MustSpecify)


@given(st.lists(PODS, max_size=3), QUOTAS)
def test_what_admission_charges_is_what_the_controller_counts(some: list[Pod], quota: ResourceQuota) -> None:
    """Pods that get in one after the other leave the status that counting them afresh gives."""
    fresh = with_calculated_usage(
        replace(quota, status=ResourceQuotaStatus(used={"services": ZERO})), [NamespaceObjects(KIND, [])]
    )
    held: tuple[ResourceQuota, ...] = (fresh,)
    inside = []
    for each in some:
        verdict = quota_verdict(create_request(each), KIND, held)
        if isinstance(verdict, WithinQuota):
            held = verdict.quotas
            inside.append(each)
    assert with_calculated_usage(fresh, [NamespaceObjects(KIND, inside)]).status == held[0].status


@given(PODS, st.lists(QUOTAS, max_size=2))
def test_a_bill_may_be_paid_again(one: Pod, held: list[ResourceQuota]) -> None:
    """Whatever is in use, paying a bill is the same as charging its object."""
    bill = quota_delta(create_request(one), KIND, held)
    now: list[ResourceQuota] | tuple[ResourceQuota, ...] = held
    for _ in range(2):
        afresh = quota_verdict(create_request(one), KIND, now)
        assert afresh == (bill if isinstance(bill, BeyondQuota) else with_delta(bill, now))
        now = afresh.quotas if isinstance(afresh, WithinQuota) else now
