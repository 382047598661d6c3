"""Counts of calls of the runtime and of requests to the API server."""

import asyncio
from contextlib import suppress
from pathlib import Path

import pytest
from tests.support.cluster_access import NODES, access_to
from tests.support.fake_api_server import fake_api_server

from nodewright.agent.observe.metric_names import CallMetrics
from nodewright.agent.runtimes.cri import CRIChannel
from nodewright.agent.runtimes.cri import api_pb2 as cri
from nodewright.agent.runtimes.cri.channel import VERSION
from nodewright.cluster.client.api_client import ApiClient
from nodewright.cluster.client.cluster_api import ApiError
from nodewright.model.errors import HostError


def test_calls_of_the_runtime_have_the_kubelets_names() -> None:
    calls = CallMetrics()
    for call, duration_s, has_failed in (("ListPodSandbox", 0.004, False), ("CreateContainer", 2, True)):
        calls.record_operation(call, "", duration_s, has_failed)
    text = calls.text()
    for line in (
        'kubelet_runtime_operations_total{operation_type="list_podsandbox"} 1',
        'kubelet_runtime_operations_errors_total{operation_type="create_container"} 1',
        'kubelet_runtime_operations_duration_seconds_bucket{operation_type="list_podsandbox",le="0.005"} 1',
        'kubelet_runtime_operations_duration_seconds_bucket{operation_type="create_container",le="1.220703125"} 0',
        'kubelet_runtime_operations_duration_seconds_bucket{operation_type="create_container",le="3.0517578125"} 1',
    ):
        assert f"{line}\n" in text, line
    assert 'errors_total{operation_type="list_podsandbox"}' not in text


def test_starts_of_sandboxes_are_counted_by_their_handler() -> None:
    calls = CallMetrics()
    for handler, has_failed in (("", False), ("kata", False), ("kata", True)):
        calls.record_operation("RunPodSandbox", handler, 0.2, has_failed)
    text = calls.text()
    assert 'kubelet_run_podsandbox_duration_seconds_bucket{runtime_handler="kata",le="0.25"} 2\n' in text
    assert 'kubelet_run_podsandbox_duration_seconds_count{runtime_handler=""} 1\n' in text
    assert 'kubelet_run_podsandbox_errors_total{runtime_handler="kata"} 1\n' in text
    assert 'errors_total{runtime_handler=""}' not in text


def test_relists_cgroups_pulls_and_volumes_are_timed() -> None:
    calls = CallMetrics()
    assert calls.text() == ""
    calls.record_relist(1000.7, 0.03, None)
    calls.record_relist(1002.9, 0.06, 2.2)
    calls.record_cgroup_operation("create", 0.004)
    calls.record_pull("uid", 1000.0, 7.0, 300 << 20)
    calls.record_pull("uid", 1000.0, 0.5, 0)
    calls.record_storage_operation("kubernetes.io/secret", "volume_mount", 0.02, has_failed=False)
    calls.record_storage_operation("kubernetes.io/secret", "volume_mount", 0.02, has_failed=True)
    text = calls.text()
    labels = 'volume_plugin="kubernetes.io/secret",operation_name="volume_mount",status'
    for line in (
        'kubelet_pleg_relist_duration_seconds_bucket{le="0.05"} 1',
        'kubelet_pleg_relist_interval_seconds_bucket{le="2.5"} 1',
        "kubelet_pleg_relist_interval_seconds_count 1",
        "kubelet_pleg_last_seen_seconds 1002",
        'kubelet_cgroup_manager_duration_seconds_bucket{operation_type="create",le="0.005"} 1',
        'kubelet_image_pull_duration_seconds_bucket{image_size_in_bytes="100MB-500MB",le="10"} 1',
        'kubelet_image_pull_duration_seconds_bucket{image_size_in_bytes="N/A",le="1"} 1',
        f'storage_operation_duration_seconds_count{{{labels}="success",migrated="false"}} 1',
        f'storage_operation_duration_seconds_count{{{labels}="fail-unknown",migrated="false"}} 1',
    ):
        assert f"{line}\n" in text, line


def test_a_call_that_fails_is_counted(tmp_path: Path) -> None:
    async def call() -> str:
        calls, channel = CallMetrics(), CRIChannel(str(tmp_path / "none.sock"), timeout_factor=0.05)
        channel.on_call = calls.record_operation
        with pytest.raises(HostError):
            await channel.call(VERSION, cri.VersionRequest(), "")
        await channel.close()
        return calls.text()

    assert 'kubelet_runtime_operations_errors_total{operation_type="version"} 1\n' in asyncio.run(call())


def test_requests_are_counted_by_their_answer() -> None:
    async def requests(client: ApiClient, path: str) -> None:
        with suppress(ApiError):
            await client.get(path)

    async def run() -> str:
        calls = CallMetrics()
        with fake_api_server() as server:
            server.serve(NODES, {"items": []})
            access = access_to(server)
            async with ApiClient(access) as client:
                client.on_answer = calls.record_request
                await requests(client, NODES)
        async with ApiClient(access) as client:
            client.on_answer = calls.record_request
            await requests(client, NODES)
        host = access.server.removeprefix("https://").removeprefix("http://")
        return calls.text().replace(host, "HOST")

    text = asyncio.run(run())
    for code in ("200", "<error>"):
        assert f'rest_client_requests_total{{code="{code}",host="HOST",method="GET"}} 1\n' in text
    assert 'rest_client_request_duration_seconds_count{host="HOST",verb="GET"} 2\n' in text
