from typing import Any

import pytest

from nodewright.engine.core.predicates.predicate_check import (
    NO_USAGE,
    host_ports,
    node_usage,
    port_conflicts,
    shortages,
)
from nodewright.model.kubernetes.objects import Pod
from nodewright.model.reasons.predicates import InsufficientResource
from nodewright.testing.objects import a_pod

CONFLICTS = """
    held 80/TCP/           wanted 80/TCP/           -> taken
    held 80/TCP/           wanted 80/UDP/           -> free
    held 80/TCP/           wanted 81/TCP/           -> free
    held 80/TCP/           wanted 80//              -> taken
    held 80/TCP/           wanted 80/TCP/127.0.0.1  -> taken
    held 80/TCP/127.0.0.1  wanted 80/TCP/0.0.0.0    -> taken
    held 80/TCP/127.0.0.1  wanted 80/TCP/127.0.0.1  -> taken
    held 80/TCP/127.0.0.1  wanted 80/TCP/10.0.0.1   -> free
    held 80/TCP/::         wanted 80/TCP/10.0.0.1   -> free
"""


def port(text: str) -> dict[str, Any]:
    number, protocol, address = text.split("/")
    return {"containerPort": 1, "hostPort": int(number), "protocol": protocol, "hostIP": address}


def with_ports(name: str, *ports: str) -> Pod:
    return a_pod(name, containers=[{"name": "main", "ports": [port(text) for text in ports]}])


@pytest.mark.parametrize("line", CONFLICTS.strip().splitlines())
def test_a_port_meets_itself_on_the_same_address_and_on_all(line: str) -> None:
    _, held, _, wanted, _, answer = line.split()
    others = node_usage([with_ports("holder", held)])
    conflicts = port_conflicts(with_ports("web", wanted), others)
    assert [conflict.holder for conflict in conflicts] == (["default/holder"] if answer == "taken" else [])


def test_every_port_in_use_is_named_with_its_holder() -> None:
    others = node_usage([with_ports("one", "80/TCP/"), with_ports("two", "443/TCP/10.0.0.1")])
    conflicts = port_conflicts(with_ports("web", "80/TCP/", "443/TCP/", "8080/TCP/"), others)
    assert [(conflict.port, conflict.holder, conflict.holder_ip) for conflict in conflicts] == [
        (80, "default/one", "0.0.0.0"),  # noqa: S104 - an address in a table
        (443, "default/two", "10.0.0.1"),
    ]


def test_sidecars_take_host_ports_and_ordinary_init_containers_do_not() -> None:
    pod = a_pod(
        initContainers=[
            {"name": "sidecar", "restartPolicy": "Always", "ports": [port("1/TCP/")]},
            {"name": "init", "ports": [port("2/TCP/")]},
        ],
        containers=[{"name": "main", "ports": [port("3/TCP/"), {"containerPort": 4}]}],
    )
    assert [host_port.port for host_port in host_ports(pod)] == [1, 3]


def test_adding_and_taking_away_a_pod_leaves_what_was_there() -> None:
    pod = with_ports("one", "80/TCP/")
    two = a_pod("two", {"cpu": 1, "memory": "1Gi", "example.com/gpu": 2})
    before = node_usage([pod])
    after = before.plus(two).minus(two)
    assert (after.pods, after.ports) == (before.pods, before.ports)
    assert not any(after.requests.values())
    assert before.minus(pod).ports == ()


def test_a_pod_that_is_being_resized_counts_for_the_larger_of_old_and_new() -> None:
    status = {"containerStatuses": [{"name": "main", "resources": {"requests": {"cpu": 3}}}]}
    assert node_usage([a_pod("one", {"cpu": 1}, status=status)]).requests["cpu"] == 3000


def test_sums_beyond_64_bits_wrap_as_the_kubelets_do() -> None:
    others = node_usage([a_pod("one", {"memory": "7Ei"}), a_pod("two", {"memory": "7Ei"})])
    assert others.requests["memory"] == (14 << 60) - (1 << 64)


def test_a_pod_that_asks_for_nothing_lacks_at_most_a_place() -> None:
    full = node_usage([a_pod("one", {"cpu": 9})])
    assert shortages({}, full, {"cpu": 1000, "pods": 2}) == []
    assert shortages({"cpu": 0}, full, {"cpu": 1000, "pods": 1}) == [
        InsufficientResource(resource="pods", requested=1, used=1, capacity=1)
    ]


def test_a_node_that_does_not_say_how_many_pods_it_takes_takes_none() -> None:
    assert [shortage.resource for shortage in shortages({}, NO_USAGE, {})] == ["pods"]
