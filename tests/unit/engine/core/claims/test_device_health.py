"""How devices of claims are: reports of drivers, reports that are too old, and the status of containers."""

from msgspec.structs import replace

from nodewright.engine.core.claims.device_health import (
    MAX_DEVICES,
    DeviceHealth,
    DriverHealth,
    ResourceHealth,
    ResourceStatus,
    resource_statuses,
    with_report,
)
from nodewright.engine.core.claims.prepared_claims import PreparedClaim, PreparedClaims, PreparedDevice
from nodewright.model.kubernetes.objects import Pod
from nodewright.testing.objects import a_pod

GOOD = DeviceHealth(pool="p", device="0", health="Healthy")
BAD = DeviceHealth(pool="p", device="1", health="Unhealthy", message="too hot", timeout_s=100)


def pod(*used: dict[str, str]) -> Pod:
    made = a_pod(
        "own",
        resourceClaims=[
            {"name": "c", "resourceClaimName": "gpus"},
            {"name": "t", "resourceClaimTemplateName": "x"},
        ],
    )
    (container,) = made.spec.containers
    resources = replace(container.resources, claims=used)
    return replace(made, spec=replace(made.spec, containers=(replace(container, resources=resources),)))


def statuses(
    known: DriverHealth, now_s: float, *used: dict[str, str], messages: bool = True
) -> tuple[ResourceStatus, ...]:
    devices = (
        PreparedDevice(pool="p", device="0", requests=("small",), cdi_devices=("d/gpu=0", "d/mem=0")),
        PreparedDevice(pool="p", device="1", requests=("large",)),
    )
    claim = PreparedClaim(uid="u", name="gpus", namespace="default", drivers={"d": devices, "other": None})
    own = pod(*used)
    claims = PreparedClaims({claim.key: claim})
    return resource_statuses(own, own.spec.containers[0], claims, {"d": known}, now_s, with_messages=messages)


def test_a_container_has_the_devices_of_its_requests_under_the_name_that_the_runtime_knows() -> None:
    known = with_report({}, [GOOD, BAD], 0.0)
    good = ResourceHealth(resource_id="d/gpu=0", health="Healthy")
    bad = ResourceHealth(resource_id="d/p/1", health="Unhealthy", message="too hot")
    assert statuses(known, 1.0, {"name": "c"}) == (ResourceStatus("claim:c", (good, bad)),)
    assert statuses(known, 1.0, {"name": "c", "request": "large/8x"}) == (
        ResourceStatus("claim:c/large/8x", (bad,)),
    )
    assert statuses(known, 1.0, {"name": "c", "request": "large"}, messages=False) == (
        ResourceStatus("claim:c/large", (replace(bad, message=""),)),
    )
    # Of a claim that is not created yet, or of a request without devices, there is nothing to say.
    assert statuses(known, 1.0, {"name": "t"}, {"name": "none"}, {"name": "c", "request": "no"}) == ()


def test_a_report_counts_for_the_time_that_the_driver_names() -> None:
    def healths(known: DriverHealth, now_s: float) -> list[str]:
        return [each.health for status in statuses(known, now_s, {"name": "c"}) for each in status.resources]

    known = with_report({}, [GOOD, BAD], 0.0)
    assert [healths(known, now_s) for now_s in (30.0, 30.1, 100.1)] == [
        ["Healthy", "Unhealthy"],
        ["Unknown", "Unhealthy"],
        ["Unknown", "Unknown"],
    ]
    # A device that is left out of a report stays as it was until then.
    later = with_report(known, [BAD], 20.0)
    assert [healths(later, now_s) for now_s in (30.0, 31.0, 121.0)] == [
        ["Healthy", "Unhealthy"],
        ["Unknown", "Unhealthy"],
        ["Unknown", "Unknown"],
    ]
    assert healths({}, 0.0) == ["Unknown", "Unknown"]


def test_times_without_sense_and_long_messages_are_bounded() -> None:
    (kept,) = with_report({}, [replace(GOOD, timeout_s=-1, message="é" * 600)], 0.0).values()
    assert kept.timeout_s == 30
    assert kept.message == "é" * 510 + "..."
    (kept,) = with_report({}, [replace(GOOD, message="x" * 1024)], 0.0).values()
    assert kept.message == "x" * 1024


def test_a_driver_that_names_other_devices_each_time_is_bounded() -> None:
    known = with_report({}, [GOOD], 0.0)
    for number in range(4):
        report = [
            replace(GOOD, device=f"{number}-{index}", timeout_s=2**62) for index in range(MAX_DEVICES // 2)
        ]
        known = with_report(known, report, float(number))
        assert len(known) <= MAX_DEVICES
    assert (GOOD.pool, "3-0") in known
    report = [replace(GOOD, device=str(index)) for index in range(MAX_DEVICES + 1)]
    assert len(with_report(known, report, 5.0)) == MAX_DEVICES
