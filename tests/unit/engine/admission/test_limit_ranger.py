"""Limit ranges: each line is a range and an object in short form; messages are the API server's."""

from typing import Any

import pytest

from nodewright.documents.formats.decode import decode
from nodewright.engine.admission.limit_ranger import (
    BeyondLimits,
    FilledIn,
    WithinLimits,
    claim_limit_violations,
    is_limit_checked,
    limit_range_as_stored,
    limit_ranger_verdict,
    pod_limit_violations,
    pod_totals,
    with_limit_range_defaults,
)
from nodewright.model.kubernetes.api_request import APIRequest, Operation, create_request, update_request
from nodewright.model.kubernetes.cluster_objects import LimitRange, PersistentVolumeClaim
from nodewright.model.kubernetes.objects import Pod, ResourceList
from nodewright.model.reasons.api_server import (
    Bound,
    OutOfBounds,
    RatioTooLarge,
    RequestOrLimit,
    Subject,
)
from nodewright.model.values.quantity import Quantity
from nodewright.testing.objects import a_pod, amounts, container, pod, sidecar


def a_range(*items: dict[str, Any], name: str = "limits") -> LimitRange:
    return decode({"metadata": {"name": name}, "spec": {"limits": list(items)}}, LimitRange)


def of_containers(**lists: dict[str, str]) -> dict[str, Any]:
    return {"type": "Container", **lists}


def a_claim(**requests: str) -> PersistentVolumeClaim:
    return decode({"spec": {"resources": {"requests": requests}}}, PersistentVolumeClaim)


def short(listed: ResourceList) -> str:
    return " ".join(f"{name}={amount}" for name, amount in sorted(listed.items())) or "-"


# ---------------------------------------------------------------- defaults

# min | max | defaultRequest | default  ->  defaultRequest | default, as stored
STORED = """
    -        | cpu=4        | -        | -         ->  cpu=4               | cpu=4
    cpu=1    | -            | -        | -         ->  cpu=1               | -
    cpu=1    | cpu=4        | -        | -         ->  cpu=4               | cpu=4
    cpu=1    | cpu=4        | cpu=2    | -         ->  cpu=2               | cpu=4
    cpu=1    | cpu=4        | -        | cpu=3     ->  cpu=3               | cpu=3
    memory=1 | cpu=4        | -        | -         ->  cpu=4 memory=1      | cpu=4
"""


@pytest.mark.parametrize("line", STORED.strip().splitlines())
def test_a_stored_range_has_defaults_from_its_bounds(line: str) -> None:
    least, most, request, limit, request_after, limit_after = (
        part.strip().replace("-", "") for part in line.replace("->", "|").split("|")
    )
    item = {"min": least, "max": most, "defaultRequest": request, "default": limit}
    after = limit_range_as_stored(
        a_range(of_containers(**{name: texts(value) for name, value in item.items()}))
    )
    assert short(after.spec.limits[0].default_request) == (request_after or "-")
    assert short(after.spec.limits[0].default) == (limit_after or "-")


def texts(words: str) -> dict[str, str]:
    return {name: str(amount) for name, amount in amounts(words).items()}


def test_only_items_for_containers_get_defaults() -> None:
    other = a_range(
        {"type": "Pod", "max": {"cpu": "4"}}, {"type": "PersistentVolumeClaim", "min": {"storage": "1"}}
    )
    assert limit_range_as_stored(other) == other


DEFAULTS = a_range(of_containers(default={"cpu": "1", "memory": "1Gi"}, defaultRequest={"cpu": "100m"}))


def test_containers_get_defaults_for_unset_resources() -> None:
    given = with_limit_range_defaults(
        pod(container("app", "cpu=2", "memory=2Gi"), init=(container("setup", "", "cpu=3 memory=3Gi"),)),
        DEFAULTS,
    )
    app, setup = given.pod.spec.containers[0].resources, given.pod.spec.init_containers[0].resources
    # The request stays above the limit that it gets.
    assert (short(app.requests), short(app.limits)) == ("cpu=2", "cpu=1 memory=2Gi")
    assert (short(setup.requests), short(setup.limits)) == ("cpu=100m", "cpu=3 memory=3Gi")
    assert given.defaults == (
        FilledIn(container="app", init=False, requests={}, limits=amounts("cpu=1")),
        FilledIn(container="setup", init=True, requests=amounts("cpu=100m"), limits={}),
    )


def test_a_pod_with_all_resources_set_is_unchanged() -> None:
    full = pod(container("app", "1/1Gi", "1/1Gi"))
    assert with_limit_range_defaults(full, DEFAULTS).pod is full


def test_of_several_items_the_last_one_gives_the_default() -> None:
    both = a_range(
        of_containers(default={"cpu": "1", "memory": "1Gi"}),
        {"type": "Pod", "default": {"cpu": "3"}},
        of_containers(default={"cpu": "2"}),
    )
    filled = with_limit_range_defaults(pod(container("app")), both).pod
    assert short(filled.spec.containers[0].resources.limits) == "cpu=2 memory=1Gi"


# ---------------------------------------------------------------- bounds

# which bound and its amount | requests | limits of the one container  ->  what is said
BOUNDS = """
min cpu=100m | cpu=100m | -          ->  -
min cpu=100m | -        | cpu=1      ->  minimum cpu usage per Container is 100m.  No request is specified
min cpu=100m | cpu=99m  | cpu=50m    ->  minimum cpu usage per Container is 100m, but request is 99m
min cpu=100m | cpu=1    | cpu=99m    ->  minimum cpu usage per Container is 100m, but limit is 99m
max cpu=1    | cpu=1    | cpu=1      ->  -
max cpu=1    | -        | cpu=1      ->  -
max cpu=1    | cpu=1    | -          ->  maximum cpu usage per Container is 1.  No limit is specified
max cpu=1    | cpu=3    | cpu=1001m  ->  maximum cpu usage per Container is 1, but limit is 1001m
max cpu=1    | cpu=1001m | cpu=1     ->  maximum cpu usage per Container is 1, but request is 1001m
max memory=1Gi | memory=1.5Gi | memory=1Gi ->  maximum memory usage per Container is 1Gi, but request is 1536Mi
maxLimitRequestRatio cpu=2 | cpu=1 | cpu=2     ->  -
maxLimitRequestRatio cpu=2 | cpu=3 | cpu=6001m ->  cpu max limit to request ratio per Container is 2, but provided ratio is 2.000333
maxLimitRequestRatio cpu=1500m | cpu=2 | cpu=3 ->  -
maxLimitRequestRatio cpu=2 | -     | cpu=2     ->  cpu max limit to request ratio per Container is 2, but no request is specified or request is 0
maxLimitRequestRatio cpu=2 | cpu=0 | -         ->  cpu max limit to request ratio per Container is 2, but no request is specified or request is 0
maxLimitRequestRatio cpu=2 | cpu=1 | -         ->  cpu max limit to request ratio per Container is 2, but no limit is specified or limit is 0
maxLimitRequestRatio cpu=2 | cpu=1 | cpu=0     ->  cpu max limit to request ratio per Container is 2, but no limit is specified or limit is 0
"""


@pytest.mark.parametrize("line", BOUNDS.strip().splitlines())
def test_a_container_keeps_within_its_bounds_or_is_refused(line: str) -> None:
    case, said = (part.strip() for part in line.split(" ->  "))
    bound, requests, limits = (part.strip().removeprefix("-") for part in case.split("|"))
    name, amount = bound.split()
    limit_range = a_range(of_containers(**{name: texts(amount)}))
    result = pod_limit_violations(pod(container("app", requests, limits)), limit_range)
    assert [reason.message() for reason in result] == ([] if said == "-" else [said])


# A bound, a request: whether the request is too small. Thousandths count unless one of the three amounts is huge.
PRECISION = [
    ("1500m", "1499m", None, True),
    ("2", "1999m", None, True),
    ("2", "1999m", "9223372036854775807", False),
    ("9223372036854775807", "9223372036854775806", None, True),
    ("9223372036854775", "9223372036854774999m", None, True),
    ("9223372036854776", "9223372036854775999m", None, False),
]


@pytest.mark.parametrize(("least", "request_", "limit", "too_small"), PRECISION)
def test_amounts_are_compared_in_thousandths_where_they_fit(
    least: str, request_: str, limit: str | None, too_small: bool
) -> None:
    limit_range = a_range(of_containers(min={"memory": least}))
    limits = {"memory": limit} if limit else ""
    assert (
        bool(pod_limit_violations(pod(container("app", {"memory": request_}, limits)), limit_range))
        is too_small
    )


def test_a_huge_ratio_is_compared_in_whole_numbers() -> None:
    limit_range = a_range(of_containers(maxLimitRequestRatio={"cpu": "9223372036854775807"}))
    assert pod_limit_violations(pod(container("app", "cpu=1m", "cpu=1000")), limit_range) == ()


def test_violations_carry_their_numbers_and_container() -> None:
    limit_range = a_range(
        of_containers(max={"memory": "1Gi", "cpu": "1"}, maxLimitRequestRatio={"memory": "2"}),
        {"type": "Pod", "max": {"cpu": "1"}},
        {"type": "Planet", "max": {"cpu": "0"}},
    )
    full = pod(
        container("app", "memory=1Gi", "memory=3Gi cpu=1"), init=(sidecar("log", "", "cpu=1 memory=0"),)
    )
    app = Subject(type="Container", container="app")
    log = Subject(type="Container", container="log", init=True)
    result = pod_limit_violations(full, limit_range)
    assert result[0] == OutOfBounds(
        subject=app,
        resource="memory",
        bound=Bound.MAXIMUM,
        enforced=Quantity.parse("1Gi"),
        figure=RequestOrLimit.LIMIT,
        observed=Quantity.parse("3Gi"),
    )
    assert result[1] == RatioTooLarge(
        subject=app,
        resource="memory",
        enforced=Quantity.parse("2"),
        request=Quantity.parse("1Gi"),
        limit=Quantity.parse("3Gi"),
        ratio=3.0,
    )
    assert [reason.subject for reason in result[2:]] == [log, Subject(type="Pod")]


# ---------------------------------------------------------------- pods and claims as a whole


def test_a_pods_totals_have_its_pod_level_cpu_and_memory_and_no_overhead() -> None:
    whole = pod(
        container("app", "1/1Gi", "1/1Gi"),
        init=(sidecar("log", "cpu=1"), container("setup", "cpu=3", "cpu=3")),
        overhead="1/1Gi",
    )
    assert short(pod_totals(whole).requests) == "cpu=4 memory=1Gi"
    assert short(pod_totals(whole).limits) == "cpu=3 memory=1Gi"
    level = pod(container("app", "1/1Gi", "hugepages-2Mi=2Mi"), whole="cpu=5 hugepages-2Mi=4Mi")
    assert short(pod_totals(level).requests) == "cpu=5 memory=1Gi"
    assert short(pod_totals(level).limits) == "cpu=5 hugepages-2Mi=2Mi"


CLAIM = {"type": "PersistentVolumeClaim", "min": {"storage": "1Gi"}, "max": {"storage": "2Gi"}}


@pytest.mark.parametrize(
    ("storage", "said"),
    [
        ("1Gi", []),
        ("2Gi", []),
        ("1Mi", ["minimum storage usage per PersistentVolumeClaim is 1Gi, but request is 1Mi"]),
        ("3Gi", ["maximum storage usage per PersistentVolumeClaim is 2Gi, but request is 3Gi"]),
        (
            None,
            [
                "minimum storage usage per PersistentVolumeClaim is 1Gi.  No request is specified",
                "maximum storage usage per PersistentVolumeClaim is 2Gi.  No request is specified",
            ],
        ),
    ],
)
def test_of_a_claim_to_a_volume_the_request_is_bounded(storage: str | None, said: list[str]) -> None:
    claim = a_claim(**({"storage": storage} if storage else {}))
    limit_range = a_range(CLAIM, of_containers(max={"storage": "0"}))
    assert [reason.message() for reason in claim_limit_violations(claim, limit_range)] == said


# ---------------------------------------------------------------- admission

DYING: dict[str, Any] = {"metadata": {"deletionTimestamp": "2026-01-01T00:00:00Z"}}
POD = a_pod()


@pytest.mark.parametrize(
    ("request_", "is_looked_at"),
    [
        (create_request(POD), True),
        (APIRequest(operation=Operation.CREATE, object=POD, subresource="binding"), False),
        (APIRequest(operation=Operation.DELETE, object=POD), False),
        (update_request(POD, POD), False),
        (update_request(POD, POD, "status"), False),
        (update_request(POD, POD, "resize"), True),
        (update_request(a_pod(**DYING), POD, "resize"), False),
        (create_request(a_claim()), True),
        (update_request(a_claim(), a_claim()), True),
        (update_request(a_claim(), a_claim(), "status"), False),
    ],
)
def test_creations_and_resizes_are_checked(
    request_: APIRequest[Pod] | APIRequest[PersistentVolumeClaim], is_looked_at: bool
) -> None:
    assert is_limit_checked(request_) is is_looked_at


def test_all_ranges_fill_in_before_the_first_checks() -> None:
    strict = a_range(of_containers(max={"memory": "1Gi"}), name="strict")
    giving = a_range(of_containers(default={"memory": "2Gi"}), name="giving")
    verdict = limit_ranger_verdict(create_request(pod(container("app"))), [strict, giving])
    assert isinstance(verdict, BeyondLimits)
    assert verdict.limit_range == "strict"
    assert [reason.message() for reason in verdict.because] == [
        "maximum memory usage per Container is 1Gi, but limit is 2Gi"
    ]
    assert [(each.limit_range, len(each.defaults)) for each in verdict.defaulted] == [
        ("strict", 0),
        ("giving", 1),
    ]


def test_defaults_of_the_api_server_come_first() -> None:
    # The container has its limit as its request by then, so that the range's default request is for nobody.
    verdict = limit_ranger_verdict(create_request(pod(container("app", "", "cpu=2"))), [DEFAULTS])
    assert isinstance(verdict, WithinLimits)
    assert verdict.handled
    resources = verdict.pod.spec.containers[0].resources
    assert (short(resources.requests), short(resources.limits)) == ("cpu=2", "cpu=2 memory=1Gi")


def test_requests_that_limit_ranges_ignore_pass() -> None:
    verdict = limit_ranger_verdict(update_request(POD, POD), [a_range(of_containers(max={"cpu": "0"}))])
    assert isinstance(verdict, WithinLimits)
    assert not verdict.handled
