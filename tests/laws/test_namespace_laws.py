"""What always holds of manifests under quotas."""

import copy
import json
from typing import Any

from hypothesis import assume, given
from hypothesis import strategies as st

from nodewright.documents.formats.inventory import inventory_from_bytes
from nodewright.engine.admission.api_server.apply import ApplyResult, apply, namespaces_with_quotas
from nodewright.engine.admission.api_server.charges import object_charge
from nodewright.engine.admission.api_server.expansion import ExpansionOptions, ManifestExpander
from nodewright.engine.admission.quota.quota_admission import with_delta
from nodewright.model.kubernetes.api_request import Manifest
from nodewright.model.values.quantity import Quantity
from nodewright.predict.quota.fixes import pod_headroom, smallest_fixes

Document = dict[str, Any]
MILLI = Quantity.parse("1m")
AMOUNTS = st.sampled_from(["1", "250m", "0.3", "2", "1Gi", "64Mi"])
RESOURCES = ["requests.cpu", "limits.memory", "pods", "count/pods", "configmaps", "count/replicasets.apps"]


def template(request: str, limit: str) -> Document:
    resources = {"requests": {"cpu": request}, "limits": {"cpu": "9", "memory": limit}}
    return {"spec": {"containers": [{"name": "app", "resources": resources}]}}


LARGEST_COUNT = 2**31 - 1


@st.composite
def objects(draw: st.DrawFn) -> list[Document]:
    """Some objects of one namespace, each with a name of its own."""
    items: list[Document] = []
    for number in range(draw(st.integers(1, 4))):
        kind = draw(st.sampled_from(["Deployment", "StatefulSet", "ReplicaSet", "Pod", "ConfigMap"]))
        made = template(draw(AMOUNTS.filter(lambda text: "i" not in text)), draw(AMOUNTS))
        labels = {"app": "a"}
        spec: Document = {
            "replicas": draw(st.integers(0, 4)),
            "selector": {"matchLabels": labels},
            "template": {"metadata": {"labels": labels}, **made},
        }
        if kind == "StatefulSet":
            size = {"requests": {"storage": "1Gi"}}
            claim = {
                "metadata": {"name": "data"},
                "spec": {"accessModes": ["ReadWriteOnce"], "resources": size},
            }
            spec["volumeClaimTemplates"] = [claim] * draw(st.integers(0, 1))
        value: Document = {"apiVersion": "apps/v1", "kind": kind, "spec": spec}
        if kind in ("Pod", "ConfigMap"):
            value = {"apiVersion": "v1", "kind": kind, **(made if kind == "Pod" else {})}
        items.append({**value, "metadata": {"name": f"a{number}"}})
    return items


@st.composite
def quotas(draw: st.DrawFn) -> list[Document]:
    """One or two quotas on some resources."""
    names = st.sampled_from([*RESOURCES, "requests.storage", "persistentvolumeclaims"])
    hards = st.dictionaries(
        names, st.sampled_from(["0", "1", "2", "4", "6", "8Gi", "9Gi"]), min_size=1, max_size=4
    )
    return [
        {
            "apiVersion": "v1",
            "kind": "ResourceQuota",
            "metadata": {"name": f"q{number}"},
            "spec": {
                "hard": {
                    name: one if name.endswith(("memory", "storage")) else one[0]
                    for name, one in hard.items()
                }
            },
        }
        for number, hard in enumerate(draw(st.lists(hards, min_size=1, max_size=2)))
    ]


SETTINGS = st.builds(ExpansionOptions, surge=st.booleans())


def manifests(*documents: Document) -> list[Manifest]:
    content = json.dumps({"apiVersion": "v1", "kind": "List", "items": documents}).encode()
    return [entry.manifest for entry in inventory_from_bytes(content, "laws.json").objects]


def used(applied: ApplyResult) -> list[dict[str, Quantity]]:
    return [dict(quota.status.used) for quota in applied.after["default"].quotas]


def exceeded(applied: ApplyResult) -> int:
    return len(applied.refusals)


@given(objects(), quotas(), SETTINGS)
def test_what_is_in_use_is_the_sum_of_what_was_charged(
    some: list[Document], hard: list[Document], setting: ExpansionOptions
) -> None:
    applied = apply(manifests(*some, *hard), setting)
    sums = {
        quota.name: dict(was.status.used)
        for was, quota in zip(applied.before["default"].quotas, applied.after["default"].quotas, strict=True)
    }
    for outcome in applied.outcomes:
        for quota, amounts in outcome.charge:
            for name, amount in amounts.items():
                sums[quota][name] = sums[quota][name] + amount * outcome.admitted
    assert list(sums.values()) == used(applied)


@given(objects(), quotas(), SETTINGS)
def test_the_order_of_objects_that_all_fit_does_not_count(
    some: list[Document], hard: list[Document], setting: ExpansionOptions
) -> None:
    applied = apply(manifests(*some, *hard), setting)
    assume(not applied.refusals)
    backwards = apply(manifests(*hard[:1], *reversed(some), *hard[1:]), setting)
    assert not backwards.refusals
    assert used(backwards) == used(applied)


@given(objects(), quotas(), SETTINGS)
def test_an_object_less_frees_just_what_it_was_charged(
    some: list[Document], hard: list[Document], setting: ExpansionOptions
) -> None:
    applied = apply(manifests(*some, *hard), setting)
    assume(not applied.refusals)
    without = used(apply(manifests(*some[1:], *hard), setting))
    names = [quota.name for quota in applied.after["default"].quotas]
    for outcome in applied.outcomes:
        for quota, amounts in outcome.charge if outcome.manifest == 0 else ():
            left = without[names.index(quota)]
            for name, amount in amounts.items():
                left[name] = left[name] + amount * outcome.requested
    assert without == used(applied)


@given(objects(), quotas(), SETTINGS)
def test_raised_quotas_are_just_large_enough(
    some: list[Document], hard: list[Document], setting: ExpansionOptions
) -> None:
    before = manifests(*some, *hard)
    quota_fixes = smallest_fixes(before, apply(before, setting), setting)
    raised = copy.deepcopy(hard)
    for increase in quota_fixes.quota_increases:
        raised[int(increase.quota[1:])]["spec"]["hard"][increase.resource] = str(increase.minimum)
    # What limits and requests must be given has nothing to do with room, and all are given here.
    assert not apply(manifests(*some, *raised), setting).refusals
    for increase in quota_fixes.quota_increases:
        less = copy.deepcopy(raised)
        one_less = increase.minimum - (
            MILLI if increase.resource.startswith(("req", "lim")) else Quantity.of(1)
        )
        less[int(increase.quota[1:])]["spec"]["hard"][increase.resource] = str(one_less)
        assert apply(manifests(*some, *less), setting).refusals


@given(objects(), quotas(), SETTINGS)
def test_lowered_replicas_are_just_few_enough(
    some: list[Document], hard: list[Document], setting: ExpansionOptions
) -> None:
    before = manifests(*some, *hard)
    quota_fixes = smallest_fixes(before, apply(before, setting), setting)
    for ways in (
        *([reduction] for reduction in quota_fixes.single_reductions),
        list(quota_fixes.combined_reductions),
    ):
        lowered = copy.deepcopy(some)
        for way in ways:
            lowered[way.manifest]["spec"]["replicas"] = way.maximum
        if ways:
            assert not apply(manifests(*lowered, *hard), setting).refusals
        for way in ways:
            more = copy.deepcopy(lowered)
            more[way.manifest]["spec"]["replicas"] = way.maximum + 1
            assert apply(manifests(*more, *hard), setting).refusals


@given(objects(), quotas())
def test_there_is_room_for_so_many_more_pods_and_no_more(some: list[Document], hard: list[Document]) -> None:
    setting = ExpansionOptions()
    before = manifests(*some, *hard)
    applied = apply(before, setting)
    assume(not applied.refusals)
    for room in pod_headroom(before, applied, setting):
        if some[room.manifest]["kind"] == "Pod":
            continue
        for extra in (room.additional_pods or 0, (room.additional_pods or 0) + 1):
            more = copy.deepcopy(some)
            more[room.manifest]["spec"]["replicas"] += extra
            if more[room.manifest]["spec"]["replicas"] > LARGEST_COUNT:
                # More can be had than can be asked for.
                continue
            refusals = apply(manifests(*more, *hard), setting).refusals
            assert bool(refusals) is (room.additional_pods is not None and extra > room.additional_pods)


@given(objects(), quotas())
def test_sets_made_at_once_are_as_sets_made_one_after_the_other(
    some: list[Document], hard: list[Document]
) -> None:
    before = [
        manifest
        for manifest in manifests(*some, *hard)
        if manifest.controller is not None or manifest.kind == "Pod"
    ]
    (namespace,) = namespaces_with_quotas(manifests(*hard), ExpansionOptions()).values()
    planner = ManifestExpander(ExpansionOptions(), {})
    now = namespace.quotas
    admitted = []
    for each in before:
        has_children = True
        for plan in planner.steady_plans(each):
            prices = [object_charge(part.resource, part.object, namespace) for part in plan.objects]
            counts = [0] * len(prices)
            for _ in range(plan.count if has_children else 0):
                for at, price in enumerate(prices):
                    assert price.delta is not None
                    verdict = with_delta(price.delta, now)
                    if not hasattr(verdict, "quotas"):
                        break
                    now = verdict.quotas
                    counts[at] += 1
                if plan.max_batch and counts[0] > counts[-1]:
                    break
            # What is refused between an object and its pods has no children.
            has_children &= plan.pod is not None or min(counts) == plan.count
            admitted += counts
    as_it_was = ApplyResult(outcomes=(), before={"default": namespace}, after={})
    applied = apply(before, ExpansionOptions(), again=as_it_was)
    assert [outcome.admitted for outcome in applied.outcomes] == admitted
    assert [dict(quota.status.used) for quota in now] == used(applied)
