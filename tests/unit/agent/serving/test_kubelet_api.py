"""The kubelet's HTTP API over TLS: what is answered."""

import asyncio
import json
import socket
from pathlib import Path

from msgspec.structs import replace
from tests.support.kubelet_api import HTTPSAgent, http_request, with_served_agent

from nodewright.agent.devices.claim_manager import ClaimManager
from nodewright.agent.devices.dra_plugins import DRAPlugins
from nodewright.agent.devices.plugin_client import GRPCDRAPluginClient
from nodewright.agent.host.volumes import volume_plugin
from nodewright.agent.runtimes.simulated import ContainerScript
from nodewright.agent.serving.node_metrics import FRESH_S
from nodewright.agent.state.agent_state import PodSource
from nodewright.agent.state.observations import PodDeletionRequested
from nodewright.cluster.serving.http_server import ListenAddress
from nodewright.cluster.tasks.timing import HostClock
from nodewright.documents.formats.documents import InputFile
from nodewright.documents.profiles.capture.from_cluster import read_configz
from nodewright.documents.profiles.usage_files import usage_from_file
from nodewright.engine.core.claims.prepared_claims import PreparedClaim, PreparedClaims
from nodewright.model.kubernetes.stats_summary import StatsSummary
from nodewright.model.releases.feature_gates import DEFAULT_GATES
from nodewright.testing.objects import a_guaranteed_pod, a_pod

JSON = "application/json"


@with_served_agent()
async def test_health_has_kubernetes_format(node: HTTPSAgent) -> None:
    assert (await node.request("/healthz")).text == "ok"
    assert (await node.request("/healthz/syncloop")).text == "ok"
    verbose = await node.request("/healthz?verbose")
    assert verbose.text == "[+]ping ok\n[+]log ok\n[+]syncloop ok\nhealthz check passed\n"
    assert (await node.request("/healthz?verbose&exclude=log")).text.count("[+]") == 2
    assert (await node.request("/healthz/other")).status == 404


@with_served_agent()
async def test_a_stuck_loop_is_unhealthy(node: HTTPSAgent) -> None:
    node.counting.agent_metrics.last_iteration_ns = -500 * 10**9
    # It was seen, and nobody was woken up for it.
    node.bench.loop._observations.append((1, 0, PodDeletionRequested("nobody")))
    answer = await node.request("/healthz")
    assert answer.status == 500
    assert answer.text == "[+]ping ok\n[+]log ok\n[-]syncloop failed: reason withheld\nhealthz check failed\n"
    assert "stuck for" in (await node.request("/healthz/syncloop")).text


@with_served_agent()
async def test_the_pod_list_is_current_and_cached(node: HTTPSAgent) -> None:
    assert json.loads((await node.request("/pods")).body)["items"] == []
    await node.bench.add_pods(a_guaranteed_pod("db", "2/64Mi"), a_pod("web"))
    first = await node.request("/pods")
    assert first.headers["content-type"] == JSON
    result = json.loads(first.body)
    assert (result["kind"], result["apiVersion"]) == ("PodList", "v1")
    assert [each["metadata"]["name"] for each in result["items"]] == ["db", "web"]
    assert result["items"][0]["metadata"]["annotations"]["nodewright.dev/cpus"] == "1-2"
    assert (await node.request("/pods")).body == first.body
    await node.bench.remove_pod("db", 0)
    assert [each["metadata"]["name"] for each in json.loads((await node.request("/pods")).body)["items"]] == [
        "web"
    ]


@with_served_agent(job=ContainerScript(runs_for_s=1))
async def test_running_pods_are_those_of_the_runtime(node: HTTPSAgent) -> None:
    await node.bench.add_pods(a_pod("web"))
    (pod,) = json.loads((await node.request("/runningpods/")).body)["items"]
    assert pod["metadata"] == {"name": "web", "namespace": "default", "uid": "web"}
    assert [container["name"] for container in pod["spec"]["containers"]] == ["main"]


@with_served_agent()
async def test_the_configuration_can_be_read_back(node: HTTPSAgent) -> None:
    answer = await node.request("/configz")
    place = node.tokens.parent / "configz.json"
    place.write_bytes(answer.body)
    document = read_configz(place)
    assert document["cpuManagerPolicy"] == "static"
    assert document["reservedSystemCPUs"] == "0"
    assert document["maxPods"] == 110


@with_served_agent()
async def test_a_summary_can_be_read_back(node: HTTPSAgent) -> None:
    await node.bench.add_pods(a_pod("web"))
    answer = await node.request("/stats/summary")
    usage = usage_from_file(InputFile("summary.json", answer.body))
    assert isinstance(usage, StatsSummary)
    assert usage.pods[0].pod_ref.name == "web"
    assert usage.node.memory is not None
    assert usage.node.cpu is not None
    assert usage.node.cpu.usage_core_nano_seconds
    assert [container.name for container in usage.node.system_containers] == ["pods", "kubelet"]
    result = json.loads((await node.request("/stats/summary?only_cpu_and_memory=true")).body)
    assert "fs" not in result["node"]
    assert "memory" in result["node"]


@with_served_agent()
async def test_a_pod_is_in_the_summary_from_its_first_container_on(node: HTTPSAgent) -> None:
    await node.bench.add_pods(a_pod("web"), a_pod("other"))
    containers = node.bench.runtime.containers
    for container_id in [
        held for held, container in containers.items() if container.config.pod.uid == "other"
    ]:
        del containers[container_id]
    pods = json.loads((await node.request("/stats/summary")).body)["pods"]
    assert [pod["podRef"]["name"] for pod in pods] == ["web"]
    assert all(pod["containers"] for pod in pods)


@with_served_agent()
async def test_a_failed_reading_is_a_metric(node: HTTPSAgent) -> None:
    node.bench.memory_readings.error = "gone"
    answer = await node.request("/metrics/resource")
    assert answer.status == 200
    assert "\nresource_scrape_error 1\n" in answer.text
    assert (await node.request("/stats/summary")).status == 500


@with_served_agent()
async def test_counters_of_containers_have_the_names_and_labels_of_cadvisor(node: HTTPSAgent) -> None:
    await node.bench.add_pods(a_pod("web"))
    runtime_status = node.bench.record("web").runtime_status
    assert runtime_status is not None
    cgroup = runtime_status.containers[0].cgroup
    node.bench.cgroups.groups.setdefault(cgroup, {})["memory.current"] = "4096"
    answer = await node.request("/metrics/cadvisor")
    assert answer.status == 200
    line = next(
        line
        for line in answer.text.splitlines()
        if line.startswith('container_memory_usage_bytes{container="main"')
    )
    assert f'id="{cgroup}"' in line
    assert 'namespace="default",pod="web"} 4096 ' in line
    assert "\nmachine_cpu_cores{" in answer.text


@with_served_agent()
async def test_calls_of_pod_resources_and_certificates_are_on_the_metrics_page(node: HTTPSAgent) -> None:
    assert "pod_resources_endpoint" not in (await node.request("/metrics")).text
    node.agent.pod_resources_calls.update({("v1", "requests_total"): 3, ("v1", "requests_list"): 2})
    node.agent.metric_sources.append(lambda: "kubelet_certificate_manager_client_ttl_seconds 60\n")
    await node.bench.add_pods(a_pod("web"))
    await asyncio.sleep(FRESH_S)
    page = (await node.request("/metrics")).text
    for name, count in (("requests_total", 3), ("requests_list", 2)):
        assert f'\nkubelet_pod_resources_endpoint_{name}{{server_api_version="v1"}} {count}\n' in page
    assert "\nkubelet_certificate_manager_client_ttl_seconds 60\n" in page


@with_served_agent()
async def test_parts_of_logs_can_be_requested(node: HTTPSAgent) -> None:
    await node.bench.add_pods(a_pod("web"))
    place = node.logs / "default_web_web" / "main" / "0.log"
    place.parent.mkdir(parents=True)
    lines = [f"2026-01-31T12:00:0{n}Z stdout F line {n}\n" for n in range(4)]
    place.write_text("".join(lines), "utf-8")
    base = "/containerLogs/default/web/main"
    assert (await node.request(base)).text == "line 0\nline 1\nline 2\nline 3\n"
    assert (await node.request(f"{base}?tailLines=1")).text == "line 3\n"
    assert (await node.request(f"{base}?tail=all")).text.count("\n") == 4
    assert (await node.request(f"{base}?timestamps=true&tailLines=1")).text == "2026-01-31T12:00:03Z line 3\n"
    assert (await node.request(f"{base}?sinceTime=2026-01-31T12:00:02Z")).text == "line 2\nline 3\n"
    assert (await node.request(f"{base}?limitBytes=9")).text == "line 0\nli"
    largest = "&".join(f"{name}={2**63 - 1}" for name in ("tailLines", "sinceSeconds", "limitBytes"))
    assert (await node.request(f"{base}?{largest}")).text.count("\n") == 4
    for query, status, said in (
        ("tailLines=-1", 422, "Invalid request. tailLines:"),
        ("sinceSeconds=0", 422, "whole number from 1 to 9223372036854775807"),
        ("sinceSeconds=1&sinceTime=2026-01-31T12:00:02Z", 422, "Invalid request. sinceTime: may not be"),
        ("sinceTime=soon", 400, "must be a time such as 2026"),
        ("tailLines=some", 400, "Unable to decode query. tailLines:"),
        ("limitBytes=9223372036854775808", 400, "9223372036854775808"),
        (f"sinceSeconds={'9' * 5000}", 400, "must be a whole number from 1 to"),
        ("follow=perhaps", 400, "perhaps"),
        ("stream=Stdout", 400, "PodLogsQuerySplitStreams"),
        ("previous=true", 400, 'previous terminated container "main" in pod "web" not found'),
    ):
        answer = await node.request(f"{base}?{query}")
        assert (answer.status, said in answer.text) == (status, True), query
    assert (await node.request("/containerLogs/default/none/main")).text == 'pod "none" does not exist'
    assert (
        await node.request("/containerLogs/default/web/none")
    ).text == 'container "none" not found in pod "web"'


@with_served_agent()
async def test_a_log_is_followed_until_the_container_exits(node: HTTPSAgent) -> None:
    await node.bench.add_pods(a_pod("web"))
    place = node.logs / "default_web_web" / "main" / "0.log"
    place.parent.mkdir(parents=True)
    place.write_text("2026-01-31T12:00:00Z stdout F one\n", "utf-8")
    address, head = node.places[0], b"Host: n\r\nAuthorization: Bearer reads\r\n"
    reader, writer = await asyncio.open_connection(address.address, address.port, ssl=node.client())
    writer.write(b"GET /containerLogs/default/web/main?follow=true HTTP/1.1\r\n" + head + b"\r\n")
    assert (await reader.readuntil(b"one\n")).startswith(b"HTTP/1.1 200 OK\r\n")
    with place.open("a") as log:
        log.write("2026-01-31T12:00:01Z stdout F two\n")
    await node.bench.remove_pod("web", 0)
    assert b"two\n" in await reader.readuntil(b"0\r\n\r\n")
    writer.close()


@with_served_agent()
async def test_a_command_is_run_to_its_end(node: HTTPSAgent) -> None:
    await node.bench.add_pods(a_pod("web"))
    answer = await node.request("/run/default/web/main?cmd=id%20-u", "writes", method="POST")
    assert answer.status == 200
    for path, status, said in (
        ("/run/default/none/main?cmd=id", 404, "pod does not exist"),
        ("/run/default/web/other/main?cmd=id", 404, "pod does not exist"),
        ("/run/default/web/none?cmd=id", 500, 'container not found ("none")'),
        ("/run/default/web/main", 400, "cmd is required"),
    ):
        answer = await node.request(path, "writes", method="POST")
        assert (answer.status, said in answer.text) == (status, True), path


@with_served_agent()
async def test_unsupported_routes_name_alternatives(node: HTTPSAgent) -> None:
    for path, status, said in (
        ("/debug/pprof/heap", 405, "profiling endpoint is disabled."),
        ("/debug/flags/v", 405, "flags endpoint is disabled."),
        ("/logs/", 405, "logs endpoint is disabled."),
        ("/nothing", 404, "404: Page Not Found"),
    ):
        answer = await node.request(path, "writes")
        assert (answer.status, said in answer.text) == (status, True), path
    assert (await node.request("/pods", "writes", method="POST")).status == 405


def test_without_debugging_the_rest_is_off(tmp_path: Path) -> None:
    async def through() -> None:
        node = HTTPSAgent(tmp_path)
        node.reconfigure(enable_debugging_handlers=False)
        async with node:
            answer = await node.request("/containerLogs/default/web/main", "writes")
            assert (answer.status, answer.text) == (405, "Debug endpoints are disabled.\n")
            assert (await node.request("/pods")).status == 200
            assert (await node.request("/configz")).status == 404

    asyncio.run(through())


def test_other_ports_have_fewer_routes_and_no_authentication(tmp_path: Path) -> None:
    async def through() -> None:
        with socket.create_server(("127.0.0.1", 0)) as server, socket.create_server(("127.0.0.1", 0)) as two:
            read_only, healthz = server.getsockname()[1], two.getsockname()[1]
        node = HTTPSAgent(tmp_path)
        node.reconfigure(read_only_port=read_only, healthz_port=healthz)
        async with node:
            place, health = ListenAddress("127.0.0.1", read_only), ListenAddress("127.0.0.1", healthz)
            assert (await http_request(place, "/pods", {})).status == 200
            assert (await http_request(place, "/containerLogs/a/b/c", {})).status == 405
            assert (await http_request(place, "/run/a/b/c", {}, method="POST")).status == 405
            assert (await http_request(health, "/healthz", {})).text == "ok"
            assert (await http_request(health, "/pods", {})).status == 404

    asyncio.run(through())


@with_served_agent()
async def test_decisions_are_counted_by_the_kubelets_names(node: HTTPSAgent) -> None:
    await node.bench.add_pods(a_guaranteed_pod("db", "2/64Mi"), a_guaranteed_pod("huge", "99/64Mi"))
    await node.bench.add_pods(a_pod("web"))
    text = (await node.request("/metrics")).text
    for line in (
        "kubelet_running_pods 2",
        "kubelet_containers_per_pod_count_count 2",
        "kubelet_pod_worker_start_duration_seconds_count 2",
        'kubelet_working_pods{lifecycle="sync",config="desired",static=""} 2',
        'kubelet_working_pods{lifecycle="terminating",config="runtime_only",static="unknown"} 0',
        "kubelet_topology_manager_admission_requests_total 3",
        "kubelet_cpu_manager_pinning_requests_total 2",
        "kubelet_cpu_manager_pinning_errors_total 1",
        'kubelet_admission_rejections_total{reason="UnexpectedAdmissionError"} 1',
        "kubelet_cpu_manager_exclusive_cpu_allocation_count 2",
        "kubelet_cpu_manager_shared_pool_size_millicores 5000",
        'kubelet_started_containers_total{container_type="container"} 2',
        'kubernetes_feature_enabled{name="PodLevelResources",stage="BETA"} 1',
    ):
        assert f"\n{line}\n" in text, line
    assert "\nkubernetes_build_info{" in text


@with_served_agent()
async def test_volumes_are_counted_by_plugin(node: HTTPSAgent) -> None:
    volumes = ({"name": "a", "emptyDir": {}}, {"name": "b", "hostPath": {"path": "/b"}}, {"name": "c"})
    pod = a_pod("web")
    container = replace(pod.spec.containers[0], volume_mounts=({"name": "a"}, {"name": "b"}))
    await node.bench.add_pods(replace(pod, spec=replace(pod.spec, containers=(container,), volumes=volumes)))
    node.counting.volume_plugin = lambda _pod, volume: volume_plugin(volume)
    text = (await node.request("/metrics")).text
    for plugin in ("empty-dir", "host-path"):
        for state in ("actual", "desired"):
            labels = f'plugin_name="kubernetes.io/{plugin}",state="{state}_state_of_world"'
            assert f"volume_manager_total_volumes{{{labels}}} 1\n" in text


@with_served_agent()
async def test_claims_in_use_are_counted_by_driver(node: HTTPSAgent) -> None:
    plugins = DRAPlugins(
        lambda registration, service: GRPCDRAPluginClient(registration.socket, service), HostClock()
    )
    manager = ClaimManager(Path("/none"), plugins, DEFAULT_GATES, HostClock())
    claims = {("default", each.name): each for each in (_prepared("a", "gpu.example.com"), _prepared("b"))}
    manager._claims = PreparedClaims(claims)
    node.bench.loop.effect_runner.claim_manager = manager
    lines = (await node.request("/metrics")).text.splitlines()
    counts = [line for line in lines if line.startswith("dra_resource_claims_in_use{")]
    assert counts == [
        'dra_resource_claims_in_use{driver_name="<any>"} 2',
        'dra_resource_claims_in_use{driver_name="gpu.example.com"} 1',
    ]


def _prepared(name: str, *drivers: str) -> PreparedClaim:
    of_drivers = dict.fromkeys(drivers)
    return PreparedClaim(uid=name, name=name, namespace="default", drivers=of_drivers, is_prepared=True)


@with_served_agent(main=ContainerScript(ignores_sigterm=True))
async def test_a_pod_that_is_no_longer_in_its_source_is_not_active(node: HTTPSAgent) -> None:
    await node.bench.set_source_pods(a_pod("web"), source=PodSource.FILE)
    await node.bench.set_source_pods(source=PodSource.FILE)
    text = (await node.request("/metrics")).text
    for line in (
        'kubelet_working_pods{lifecycle="terminating",config="orphan",static="true"} 1',
        'kubelet_active_pods{static="true"} 0',
        'kubelet_desired_pods{static="true"} 0',
    ):
        assert f"\n{line}\n" in text, line
