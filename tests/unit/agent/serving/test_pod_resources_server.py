"""PodResources over a socket, asked as exporters ask a kubelet, and asked with garbage."""

import asyncio
import os
import socket
import stat
from collections.abc import Callable
from contextlib import AsyncExitStack
from functools import partial
from pathlib import Path
from typing import Self, TypeVar

import grpc
import pytest
from tests.support.agent_bench import AgentBench, async_test
from tests.support.fake_clock import FakeClock, settle

from nodewright.agent.host.token_bucket import TokenBucket
from nodewright.agent.observe.event_recorder import EventRecorder
from nodewright.agent.serving.agent_interface import AgentInterface
from nodewright.agent.serving.agent_server import serve_on_demand
from nodewright.agent.serving.api_objects import NodeSystemInfo
from nodewright.agent.serving.pod_resources_server import serve_pod_resources
from nodewright.cluster.pod_resources import api_pb2 as v1
from nodewright.cluster.pod_resources.lister import PodResourcesClient
from nodewright.engine.core.claims.prepared_claims import PreparedClaim, PreparedDevice
from nodewright.model.errors import HostError
from nodewright.model.kubernetes.pod_resources_api import PodResources
from nodewright.testing.nodes import STATIC_CPUS, a_profile
from nodewright.testing.objects import a_guaranteed_pod, a_pod

T = TypeVar("T")
GPU = "nvidia.com/gpu"


class PodResourcesBench:
    """An agent on a made-up node that tells who has what, and people who ask from a thread of their own."""

    def __init__(self, folder: Path, **gates: bool) -> None:
        self.path = folder / "pod-resources" / "kubelet.sock"
        profile = a_profile(devices={GPU: "gpu-0@0 gpu-1@1"}, **STATIC_CPUS, featureGates=gates)
        self.bench = AgentBench(profile)
        board = EventRecorder(self.bench.loop.state, self.bench.clock)
        self.bench.loop.subscriber = board
        self.agent = AgentInterface(
            event_recorder=board,
            observe=self.bench.loop.observe,
            runtime=self.bench.runtime,
            clock=self.bench.clock,
            system_info=NodeSystemInfo(
                kubelet_version="v1.36", started_ns=0, container_runtime_version="fake://0"
            ),
            log_root=folder,
            claims_of_container=lambda _pod, _container: self.claims,
        )
        self.claims: tuple[PreparedClaim, ...] = ()
        self.client = PodResourcesClient(self.path, 5)
        self._stack = AsyncExitStack()

    async def __aenter__(self) -> Self:
        await self._stack.enter_async_context(self.bench)
        door = serve_on_demand(
            self.path, "--pod-resources-socket", lambda: partial(serve_pod_resources, self.agent)
        )
        await self._stack.enter_async_context(door)
        return self

    async def __aexit__(self, *_: object) -> None:
        await self._stack.aclose()

    async def said(self, question: Callable[[], T]) -> T:
        return await asyncio.to_thread(question)

    async def refused(self, question: Callable[[], object]) -> str:
        with pytest.raises(HostError) as caught:
            await self.said(question)
        return str(caught.value)


def held(pods: tuple[PodResources, ...]) -> dict[str, list[str]]:
    return {
        pod.name: [
            " ".join((str(container.cpus) or "-", *(each.ids[0] for each in container.devices)))
            for container in pod.containers
        ]
        for pod in pods
    }


def test_list_returns_the_resources_of_pods(tmp_path: Path) -> None:
    @async_test
    async def run_scenario() -> None:
        async with PodResourcesBench(tmp_path) as town:
            await town.bench.add_pods(a_guaranteed_pod("own", f"cpu=2 memory=1Gi {GPU}=1"), a_pod("free"))
            assert held(await town.said(town.client.pods)) == {"own": ["1-2 gpu-0"], "free": ["-"]}
            pod_resources = await town.said(lambda: town.client.pod("default", "own"))
            assert held((pod_resources,)) == {"own": ["1-2 gpu-0"]}
            there = await town.said(town.client.allocatable)
            assert (str(there.cpus), len(there.devices)) == ("1-7", 2)
            assert stat.S_IMODE(town.path.stat().st_mode) & 0o077 == 0
        assert not town.path.exists()

    run_scenario()


def test_the_claims_of_containers_are_listed(tmp_path: Path) -> None:
    devices = tuple(
        PreparedDevice(pool="p", device=name, cdi_devices=(f"d.com/gpu={name}",)) for name in ("a", "b")
    )

    @async_test
    async def run_scenario() -> None:
        async with PodResourcesBench(tmp_path) as town:
            town.claims = (PreparedClaim(uid="u", name="c", namespace="default", drivers={"d.com": devices}),)
            await town.bench.add_pods(
                a_pod("own", resourceClaims=[{"name": "g", "resourceClaimName": "c"}]), a_pod("free")
            )
            with grpc.insecure_channel(f"unix:{town.path}") as channel:
                ask = channel.unary_unary(
                    "/v1.PodResourcesLister/List",
                    request_serializer=v1.ListPodResourcesRequest.SerializeToString,
                    response_deserializer=v1.ListPodResourcesResponse.FromString,
                )
                answer = await town.said(lambda: ask(v1.ListPodResourcesRequest()))
        listed = {pod.name: list(pod.containers[0].dynamic_resources) for pod in answer.pod_resources}
        (dynamic,) = listed["own"]
        assert (dynamic.claim_namespace, dynamic.claim_name, listed["free"]) == ("default", "c", [])
        # As a kubelet does, the names of the devices before are repeated.
        assert [[each.name for each in item.cdi_devices] for item in dynamic.claim_resources] == [
            ["d.com/gpu=a"],
            ["d.com/gpu=a", "d.com/gpu=b"],
        ]

    run_scenario()


@pytest.mark.parametrize("only_active", [True, False])
def test_ended_pods_are_omitted_depending_on_the_gate(tmp_path: Path, *, only_active: bool) -> None:
    @async_test
    async def run_scenario() -> None:
        async with PodResourcesBench(tmp_path, KubeletPodResourcesListUseActivePods=only_active) as town:
            await town.bench.add_pods(a_guaranteed_pod("big", "999/1Gi"), a_guaranteed_pod("own", "2/1Gi"))
            listed = held(await town.said(town.client.pods))
            assert listed == ({} if only_active else {"big": ["-"]}) | {"own": ["1-2"]}
            for name in ("big", "none"):
                text = await town.refused(partial(town.client.pod, "default", name))
                assert f"pod {name} in namespace default not found" in text
            assert town.agent.pod_resources_calls == {
                ("v1", "requests_total"): 3,
                ("v1", "requests_list"): 1,
                ("v1", "requests_get"): 2,
                ("v1", "errors_get"): 2,
            }

    run_scenario()


def test_the_older_version_lists_devices_only(tmp_path: Path) -> None:
    def listed(path: Path) -> v1.ListPodResourcesResponse:
        with grpc.insecure_channel(f"unix:{path}") as channel:
            call = channel.unary_unary(
                "/v1alpha1.PodResourcesLister/List",
                request_serializer=v1.ListPodResourcesRequest.SerializeToString,
                response_deserializer=v1.ListPodResourcesResponse.FromString,
            )
            response: v1.ListPodResourcesResponse = call(v1.ListPodResourcesRequest(), timeout=5)
            return response

    @async_test
    async def run_scenario() -> None:
        async with PodResourcesBench(tmp_path) as town:
            await town.bench.add_pods(a_guaranteed_pod("own", f"cpu=2 memory=1Gi {GPU}=1"), a_pod("free"))
            free, own = (await town.said(lambda: listed(town.path))).pod_resources
            assert (free.name, own.name) == ("free", "own")
            (container,) = own.containers
            assert [(each.resource_name, list(each.device_ids)) for each in container.devices] == [
                (GPU, ["gpu-0"])
            ]
            assert (list(container.cpu_ids), len(container.memory)) == ([], 0)
            assert town.agent.pod_resources_calls == {("v1alpha1", "requests_total"): 1}

    run_scenario()


def test_a_pod_is_listed_until_it_is_removed(tmp_path: Path) -> None:
    @async_test
    async def run_scenario() -> None:
        async with PodResourcesBench(tmp_path) as town:
            await town.bench.add_pods(a_guaranteed_pod("own", "2/1Gi"))
            await town.bench.remove_pod("own")
            assert held(await town.said(town.client.pods)) in ({"own": ["1-2"]}, {})
            for _ in range(40):
                await town.bench.clock.advance(1)
                await settle()
            assert await town.said(town.client.pods) == ()

    run_scenario()


def test_ten_may_ask_at_once_and_then_a_hundred_a_second(tmp_path: Path) -> None:
    @async_test
    async def run_scenario() -> None:
        async with PodResourcesBench(tmp_path) as town:
            for _ in range(10):
                await town.said(town.client.pods)
            assert "rejected by rate limit" in await town.refused(town.client.pods)

    run_scenario()


def test_the_limit_lets_through_as_many_as_time_has_passed_for() -> None:
    clock = FakeClock()
    limit = TokenBucket(100, 10)
    assert [limit.take(clock.monotonic_s()) for _ in range(12)] == [True] * 10 + [False] * 2
    asyncio.run(clock.advance(0.025))
    assert [limit.take(clock.monotonic_s()) for _ in range(3)] == [True, True, False]
    asyncio.run(clock.advance(1000))
    assert sum(limit.take(clock.monotonic_s()) for _ in range(50)) == 10


def test_garbage_disturbs_nobody(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    @async_test
    async def run_scenario() -> None:
        async with PodResourcesBench(tmp_path) as town:
            for garbage in (b"", b"\0" * 100, b"GET / HTTP/1.1\r\n\r\n", os.urandom(4096)):
                await town.said(partial(throw, town.path, garbage))
            for call, body, answer in (
                ("List", b"\xff\xff\xff", "grpc: error unmarshalling request: "),
                ("Get", b"\x0a\xff", "grpc: error unmarshalling request: "),
                ("Take", b"", "Method not found!"),
            ):
                with pytest.raises(grpc.RpcError, match=answer):
                    await town.said(partial(raw, town.path, call, body))
            assert await town.said(town.client.pods) == ()
            assert not caplog.records

    run_scenario()


def throw(path: Path, garbage: bytes) -> None:
    with socket.socket(socket.AF_UNIX, socket.SOCK_STREAM) as line:
        line.connect(os.fspath(path))
        line.sendall(garbage)


def raw(path: Path, call: str, body: bytes) -> bytes:
    with grpc.insecure_channel(f"unix:{path}") as channel:
        ask = channel.unary_unary(
            f"/v1.PodResourcesLister/{call}", request_serializer=bytes, response_deserializer=bytes
        )
        return bytes(ask(body, timeout=5))


def test_the_socket_of_a_killed_agent_is_taken_over_and_that_of_a_living_one_is_not(tmp_path: Path) -> None:
    @async_test
    async def run_scenario() -> None:
        place = tmp_path / "pod-resources" / "kubelet.sock"
        place.parent.mkdir()
        with socket.socket(socket.AF_UNIX, socket.SOCK_STREAM) as left:
            left.bind(os.fspath(place))
        async with PodResourcesBench(tmp_path) as town:
            assert await town.said(town.client.pods) == ()
            with pytest.raises(
                HostError,
                match="another agent listens there; specify another path with --pod-resources-socket",
            ):
                async with serve_on_demand(place, "--pod-resources-socket", Exception):  # type: ignore[arg-type] # nobody comes
                    pass
            assert await town.said(town.client.pods) == ()

    run_scenario()


def test_a_path_that_is_too_long_for_a_socket_is_named(tmp_path: Path) -> None:
    @async_test
    async def run_scenario() -> None:
        with pytest.raises(HostError, match="at most 107 bytes"):
            async with PodResourcesBench(tmp_path / ("x" * 120)):
                pass

    run_scenario()


def test_messages_are_those_of_the_kubelet() -> None:
    """Bytes put together by hand from the numbers of the API's fields."""
    main = (
        b"\x0a\x04main" + b"\x1a\x02\x01\x02" + b"\x12\x0f\x0a\x01r\x12\x02id\x1a\x06\x0a\x04\x08\x81\x80\x04"
    )
    pod = b"\x0a\x03own\x12\x07default\x1a" + bytes([len(main)]) + main
    resources_response = v1.ListPodResourcesResponse.FromString(b"\x0a" + bytes([len(pod)]) + pod)
    (pod_resource,) = resources_response.pod_resources
    assert (pod_resource.name, pod_resource.namespace) == ("own", "default")
    assert list(pod_resource.containers[0].cpu_ids) == [1, 2]
    assert pod_resource.containers[0].devices[0].topology.nodes[0].ID == 65537
