"""What a pod as a whole asks for."""

from nodewright.core.requests import container_requests, pod_limits, pod_requests
from nodewright.model.objects import Pod
from nodewright.testing.pods import amounts, container, pod, sidecar


def both(asked: Pod) -> tuple[str, str]:
    limits = pod_limits(asked)
    return str(limits["cpu"]), str(limits["memory"])


def test_an_init_container_runs_beside_the_sidecars_that_started_before_it() -> None:
    init = (
        sidecar("log", limits="50m/110Mi"),
        sidecar("mesh", limits="60m/120Mi"),
        container("migrate", limits="100m/200Mi"),
    )
    asked = pod(container("main", limits="50m/100Mi"), init=init)
    assert both(asked) == ("210m", "430Mi")


def test_the_greatest_init_container_counts_when_it_needs_more_than_the_running_pod() -> None:
    init = (
        sidecar("log", limits="50m/110Mi"),
        sidecar("mesh", limits="50m/120Mi"),
        container("fetch", limits="60m/200Mi"),
        container("migrate", limits="100m/220Mi"),
    )
    asked = pod(container("main", limits="50m/100Mi"), init=init)
    assert both(asked) == ("200m", "450Mi")


def test_sidecars_are_added_to_the_main_container() -> None:
    """A widespread description of this pod says 500Mi; but the sidecars run beside the main container."""
    init = (
        sidecar("log", limits="50m/110Mi"),
        sidecar("mesh", limits="50m/120Mi"),
        container("fetch", limits="60m/200Mi"),
        container("migrate", limits="100m/220Mi"),
    )
    asked = pod(container("main", limits="50m/500Mi"), init=init)
    assert both(asked) == ("200m", "730Mi")


def test_overhead_counts_for_requests_always_and_for_limits_only_where_there_is_one() -> None:
    asked = pod(container("main", "cpu=1", "memory=1Gi"), overhead="250m/120Mi")
    assert pod_requests(asked) == amounts("1250m/120Mi")
    assert pod_limits(asked) == amounts("memory=1144Mi")
    assert container_requests(asked) == amounts("cpu=1")
