"""The kubelet port of hollow nodes: what logs and commands answer, and how it is served."""

from collections.abc import Callable
from pathlib import Path

import pytest
from starlette.applications import Starlette
from tests.support.fake_clock import FakeClock
from tests.support.kubelet_api import asgi_request
from tests.support.memory_cluster import MemoryCluster
from tests.unit.agent.hollow.test_hollow_nodes import HollowRun, again, in_event_loop

from nodewright.agent.hollow.hollow_options import HollowOptions, PlannedNode, planned_nodes
from nodewright.agent.hollow.hollow_server import (
    AnnotatedLogs,
    HollowRoutes,
    HollowStreams,
    hollow_serving_config,
)
from nodewright.agent.host.ports import AttachStreamRequest, ExecStreamRequest, StandardStreams
from nodewright.agent.serving.kubelet_routes import kubelet_application
from nodewright.cluster.client.access import ClusterAccess
from nodewright.model.errors import HostError, InputError
from nodewright.model.kubernetes.runtime_status import ContainerPhase, RuntimeContainerStatus

TALKS = {"logs": "first\nsecond\n", "exec": "fine", "exec-code": "3", "exec.side": "other"}
STREAMS = StandardStreams(stdin=True, stdout=True, stderr=True, tty=False)


@pytest.fixture
def hollow(tmp_path: Path) -> HollowRun:
    clock = FakeClock()
    return HollowRun(tmp_path, clock, MemoryCluster(clock))


def served(hollow: HollowRun, tmp_path: Path) -> Starlette:
    routes = HollowRoutes(hollow.shared.pods, hollow.nodes, AnnotatedLogs(tmp_path))
    return kubelet_application(routes.authorized_routes())


@in_event_loop
async def test_each_pod_answers_what_its_annotations_say(hollow: HollowRun, tmp_path: Path) -> None:
    async with hollow.running():
        app = served(hollow, tmp_path)
        hollow.create_pod("web", annotations=TALKS)
        hollow.create_pod("other", node="hollow-1", annotations={"exec": "fine"})
        hollow.create_pod("foreign", node="real")
        await hollow.after(5)
        logs = "/containerLogs/default/web/main"
        assert (await asgi_request(app, logs)).text == "first\nsecond\n"
        assert (await asgi_request(app, f"{logs}?tailLines=1")).text == "second\n"
        assert (await asgi_request(app, "/containerLogs/default/other/main")).text == ""
        run = await asgi_request(app, "/run/default/other/main?cmd=ls", method="POST")
        assert (run.code, run.text) == (200, "fine")
        run = await asgi_request(app, "/run/default/web/main?cmd=ls", method="POST")
        assert (run.code, run.text) == (500, "command 'ls' exited with 3: fine")
        for unknown in ("default/none", "shop/web", "default/foreign"):
            answer = await asgi_request(app, f"/containerLogs/{unknown}/main")
            assert (answer.code, "does not exist" in answer.text) == (404, True), unknown


@in_event_loop
async def test_a_kubelet_that_is_down_does_not_answer(hollow: HollowRun, tmp_path: Path) -> None:
    hollow = again(hollow, tmp_path, faults=("10s:hollow-0:down=60s",))
    async with hollow.running():
        app = served(hollow, tmp_path)
        hollow.create_pod("web", annotations=TALKS)
        await hollow.after(5)
        await hollow.after(10)
        answer = await asgi_request(app, "/containerLogs/default/web/main")
        assert (answer.code, answer.text) == (500, "the kubelet of node hollow-0 is down")


@in_event_loop
async def test_a_command_ends_at_once_and_nothing_is_attached_to(hollow: HollowRun) -> None:
    sent = list[tuple[int, bytes]]()

    async def send(number: int, data: bytes) -> None:
        sent.append((number, data))

    async with hollow.running():
        hollow.create_pod("web", annotations=TALKS)
        await hollow.after(5)
        kubelet = hollow.nodes["hollow-0"].kubelet
        assert kubelet is not None
        streams = HollowStreams(kubelet.runtime)
        (id_,) = kubelet.runtime.containers
        async with streams.open(
            ExecStreamRequest(container_id=id_, command=("ls",), streams=STREAMS)
        ) as session:
            await session.write(b"dropped")
            session.close_stdin()
            session.resize(80, 24)
            assert await session.copy_output(send) == 3
        assert sent == [(1, b"fine")]
        with pytest.raises(HostError, match="no process"):
            async with streams.open(AttachStreamRequest(container_id=id_, streams=STREAMS)):
                pass
        with pytest.raises(HostError, match="does not run"):
            async with streams.open(ExecStreamRequest(container_id="none", command=("ls",), streams=STREAMS)):
                pass


def test_only_the_logs_read_last_are_kept(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("nodewright.agent.hollow.hollow_server._MAX_LOGS", 2)
    logs = AnnotatedLogs(tmp_path)
    for number in (1, 2, 2, 3):
        logs.path(_container(f"../{number}"), "text")
    assert len(list(tmp_path.iterdir())) == 2
    assert logs.path(_container("../1"), "text").read_text("utf-8").endswith("Z stdout F text\n")


def _container(id_: str) -> RuntimeContainerStatus:
    return RuntimeContainerStatus(
        id=id_, name="main", attempt=0, phase=ContainerPhase.RUNNING, sandbox_id="s", started_ns=10**18
    )


@pytest.fixture
def planned(tmp_path: Path) -> Callable[[str], PlannedNode]:
    def plan(config: str) -> PlannedNode:
        path = tmp_path / "kubelet.yaml"
        kind = "apiVersion: kubelet.config.k8s.io/v1beta1\nkind: KubeletConfiguration\n"
        path.write_text(kind + config, "utf-8")
        return planned_nodes(HollowOptions(nodes=("1*vm-4",), config=path))[0]

    return plan


def test_a_configuration_that_cannot_be_served_is_refused(
    tmp_path: Path, planned: Callable[[str], PlannedNode]
) -> None:
    access = ClusterAccess(server="https://127.0.0.1:1", source="config")
    for config, rule in (
        ("serverTLSBootstrap: true", "serverTLSBootstrap"),
        ("enableServer: false", "enableServer"),
    ):
        with pytest.raises(InputError, match=rule):
            hollow_serving_config(planned(config), access, "", tmp_path)
