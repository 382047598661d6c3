"""What always holds of manifests under quotas."""

import copy
import json
from typing import Any

from hypothesis import assume, given
from hypothesis import strategies as st

from nodewright.core.quota import paid
from nodewright.model.manifest import Manifest
from nodewright.namespace.apply import Applied, apply, guarded
from nodewright.namespace.mend import mending, rooms
from nodewright.namespace.plans import Planner, Setting
from nodewright.namespace.prices import priced
from nodewright.values.quantity import Quantity
from nodewright.world.inventory import inventory_from

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
    found: list[Document] = []
    for number in range(draw(st.integers(1, 4))):
        kind = draw(st.sampled_from(["Deployment", "StatefulSet", "ReplicaSet", "Pod", "ConfigMap"]))
        made = template(draw(AMOUNTS.filter(lambda one: "i" not in one)), draw(AMOUNTS))
        spec: Document = {"replicas": draw(st.integers(0, 4)), "template": made}
        if kind == "StatefulSet":
            claim = {"metadata": {"name": "data"}, "spec": {"resources": {"requests": {"storage": "1Gi"}}}}
            spec["volumeClaimTemplates"] = [claim] * draw(st.integers(0, 1))
        value: Document = {"apiVersion": "apps/v1", "kind": kind, "spec": spec}
        if kind in ("Pod", "ConfigMap"):
            value = {"apiVersion": "v1", "kind": kind, **(made if kind == "Pod" else {})}
        found.append({**value, "metadata": {"name": f"a{number}"}})
    return found


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


SETTINGS = st.builds(Setting, surge=st.booleans())


def manifests(*documents: Document) -> list[Manifest]:
    content = json.dumps({"apiVersion": "v1", "kind": "List", "items": documents}).encode()
    return [entry.manifest for entry in inventory_from(content, "laws.json").entries]


def used(applied: Applied) -> list[dict[str, Quantity]]:
    return [dict(quota.status.used) for quota in applied.after["default"].quotas]


def exceeded(applied: Applied) -> int:
    return len(applied.refusals)


@given(objects(), quotas(), SETTINGS)
def test_what_is_in_use_is_the_sum_of_what_was_charged(
    some: list[Document], hard: list[Document], setting: Setting
) -> None:
    applied = apply(manifests(*some, *hard), setting)
    sums = {
        quota.name: dict(was.status.used)
        for was, quota in zip(applied.before["default"].quotas, applied.after["default"].quotas, strict=True)
    }
    for one in applied.outcomes:
        for quota, amounts in one.charge:
            for name, amount in amounts.items():
                sums[quota][name] = sums[quota][name] + amount * one.admitted
    assert list(sums.values()) == used(applied)


@given(objects(), quotas(), SETTINGS)
def test_the_order_of_objects_that_all_fit_does_not_count(
    some: list[Document], hard: list[Document], setting: Setting
) -> None:
    applied = apply(manifests(*some, *hard), setting)
    assume(not applied.refusals)
    backwards = apply(manifests(*hard[:1], *reversed(some), *hard[1:]), setting)
    assert not backwards.refusals
    assert used(backwards) == used(applied)


@given(objects(), quotas(), SETTINGS)
def test_an_object_less_frees_just_what_it_was_charged(
    some: list[Document], hard: list[Document], setting: Setting
) -> None:
    applied = apply(manifests(*some, *hard), setting)
    assume(not applied.refusals)
    without = used(apply(manifests(*some[1:], *hard), setting))
    names = [quota.name for quota in applied.after["default"].quotas]
    for one in applied.outcomes:
        for quota, amounts in one.charge if one.manifest == 0 else ():
            left = without[names.index(quota)]
            for name, amount in amounts.items():
                left[name] = left[name] + amount * one.wanted
    assert without == used(applied)


@given(objects(), quotas(), SETTINGS)
def test_raised_quotas_are_just_large_enough(
    some: list[Document], hard: list[Document], setting: Setting
) -> None:
    before = manifests(*some, *hard)
    found = mending(before, apply(before, setting), setting)
    raised = copy.deepcopy(hard)
    for one in found.raises:
        raised[int(one.quota[1:])]["spec"]["hard"][one.resource] = str(one.to)
    # What limits and requests must be given has nothing to do with room, and all are given here.
    assert not apply(manifests(*some, *raised), setting).refusals
    for one in found.raises:
        less = copy.deepcopy(raised)
        one_less = one.to - (MILLI if one.resource.startswith(("req", "lim")) else Quantity.of(1))
        less[int(one.quota[1:])]["spec"]["hard"][one.resource] = str(one_less)
        assert apply(manifests(*some, *less), setting).refusals


@given(objects(), quotas(), SETTINGS)
def test_lowered_replicas_are_just_few_enough(
    some: list[Document], hard: list[Document], setting: Setting
) -> None:
    before = manifests(*some, *hard)
    found = mending(before, apply(before, setting), setting)
    for ways in (*([one] for one in found.lowers), list(found.lower_all)):
        lowered = copy.deepcopy(some)
        for one in ways:
            lowered[one.manifest]["spec"]["replicas"] = one.to
        if ways:
            assert not apply(manifests(*lowered, *hard), setting).refusals
        for one in ways:
            more = copy.deepcopy(lowered)
            more[one.manifest]["spec"]["replicas"] = one.to + 1
            assert apply(manifests(*more, *hard), setting).refusals


@given(objects(), quotas())
def test_there_is_room_for_so_many_more_pods_and_no_more(some: list[Document], hard: list[Document]) -> None:
    setting = Setting()
    before = manifests(*some, *hard)
    applied = apply(before, setting)
    assume(not applied.refusals)
    for room in rooms(before, applied, setting):
        if some[room.manifest]["kind"] == "Pod":
            continue
        for extra in (room.more or 0, (room.more or 0) + 1):
            more = copy.deepcopy(some)
            more[room.manifest]["spec"]["replicas"] += extra
            if more[room.manifest]["spec"]["replicas"] > LARGEST_COUNT:
                # More can be had than can be asked for.
                continue
            refusals = apply(manifests(*more, *hard), setting).refusals
            assert bool(refusals) is (room.more is not None and extra > room.more)


@given(objects(), quotas())
def test_sets_made_at_once_are_as_sets_made_one_after_the_other(
    some: list[Document], hard: list[Document]
) -> None:
    before = [one for one in manifests(*some, *hard) if one.controller is not None or one.kind == "Pod"]
    (namespace,) = guarded(manifests(*hard), Setting()).values()
    planner = Planner(Setting(), {})
    now = namespace.quotas
    admitted = []
    for one in before:
        for plan in planner.steady(one):
            prices = [priced(part.resource, part.object, namespace) for part in plan.parts]
            counts = [0] * len(prices)
            for _ in range(plan.count):
                for at, price in enumerate(prices):
                    assert price.bill is not None
                    verdict = paid(price.bill, now)
                    if not hasattr(verdict, "quotas"):
                        break
                    now = verdict.quotas
                    counts[at] += 1
                if plan.gives_up and counts[0] > counts[-1]:
                    break
            admitted += counts
    as_it_was = Applied(outcomes=(), before={"default": namespace}, after={})
    applied = apply(before, Setting(), again=as_it_was)
    assert [one.admitted for one in applied.outcomes] == admitted
    assert [dict(quota.status.used) for quota in now] == used(applied)
