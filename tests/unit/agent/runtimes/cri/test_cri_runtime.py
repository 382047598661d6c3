"""What a runtime can do is found out by asking; what it cannot is made up for, or said."""

import asyncio
import time
from pathlib import Path
from typing import Any

import pytest
from tests.support.fake_servers import FakeCRIServer, cri_endpoint

from nodewright.agent.host.ports import Credentials, PodSandboxConfig, RuntimeFacts
from nodewright.agent.runtimes.cri import CRIChannel, CRIImageStore, CRIRuntime, pleg
from nodewright.agent.runtimes.cri import api_pb2 as cri
from nodewright.agent.runtimes.cri.configs import CGROUP_PARENT, LOG_DIRECTORY, OWNER
from nodewright.model.errors import HostError
from nodewright.model.kubernetes.objects import ObjectMeta, Pod, PodSpec

POD = Pod(ObjectMeta(name="web", namespace="default", uid="u1"), PodSpec(runtime_class_name="small"))


def facts_of(server: FakeCRIServer, place: Path) -> RuntimeFacts:
    async def ask() -> RuntimeFacts:
        async with cri_endpoint(server, place / "cri.sock") as endpoint:
            runtime = CRIRuntime(CRIChannel(endpoint))
            try:
                return await runtime.facts()
            finally:
                await runtime.close()

    return asyncio.run(ask())


def test_a_runtime_that_does_everything_lacks_nothing(tmp_path: Path) -> None:
    server = FakeCRIServer()
    server.news = asyncio.Queue()
    linux = cri.LinuxRuntimeConfiguration(cgroup_driver=cri.SYSTEMD)
    server.answers["RuntimeConfig"] = cri.RuntimeConfigResponse(linux=linux)
    runtime_facts = facts_of(server, tmp_path)
    assert (
        runtime_facts.unimplemented_calls,
        runtime_facts.limitations,
        runtime_facts.cgroup_driver,
        runtime_facts.has_events,
    ) == (
        (),
        (),
        "systemd",
        True,
    )


def test_unsupported_calls_are_limitations(tmp_path: Path) -> None:
    runtime_facts = facts_of(FakeCRIServer(), tmp_path)
    assert runtime_facts.unimplemented_calls == ("RuntimeConfig", "GetContainerEvents")
    assert [limitation.partition(":")[0] for limitation in runtime_facts.limitations] == [
        "RuntimeConfig",
        "GetContainerEvents",
    ]
    assert not runtime_facts.has_events


def test_what_is_made_up_for_is_not(tmp_path: Path) -> None:
    server = FakeCRIServer("containerd")
    runc = '{"containerd": {"runtimes": {"runc": {"options": {"SystemdCgroup": false}}}}}'
    server.answers["Status"] = cri.StatusResponse(info={"config": runc})
    runtime_facts = facts_of(server, tmp_path)
    assert (runtime_facts.unimplemented_calls, runtime_facts.limitations) == (
        ("RuntimeConfig", "GetContainerEvents"),
        (),
    )
    assert (runtime_facts.cgroup_driver, runtime_facts.has_events) == ("cgroupfs", True)


def test_another_cri_is_refused(tmp_path: Path) -> None:
    server = FakeCRIServer()
    server.answers["Version"] = cri.VersionResponse(runtime_name="old", runtime_api_version="v1alpha2")
    with pytest.raises(HostError, match="CRI v1 is needed, not 'v1alpha2'"):
        facts_of(server, tmp_path)


@pytest.mark.parametrize("tells", [True, False])
def test_changes_are_heard_from_events_or_seen_by_relists(
    tells: bool, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    assert pleg.RELIST_PERIOD_S == 1
    monkeypatch.setattr(pleg, "RELIST_PERIOD_S", 1000 if tells else 0.05)
    monkeypatch.setattr(pleg, "EVENTED_RELIST_PERIOD_S", 1000)
    server = FakeCRIServer()
    server.news = asyncio.Queue() if tells else None
    notes = {OWNER: "nodewright", CGROUP_PARENT: "/x", LOG_DIRECTORY: "/y"}
    there = cri.PodSandbox(id="s", metadata=cri.PodSandboxMetadata(uid="u1"), annotations=notes)
    server.answers["ListPodSandbox"] = cri.ListPodSandboxResponse()
    server.answers["ListContainers"] = cri.ListContainersResponse()

    async def watch() -> None:
        async with cri_endpoint(server, tmp_path / "cri.sock") as endpoint:
            runtime = CRIRuntime(CRIChannel(endpoint))
            relists = list[tuple[float, float, float | None]]()
            relisted = asyncio.Event()

            def on_relist(*relist: Any) -> None:
                relists.append(relist)
                relisted.set()

            runtime.on_relist = on_relist
            changes = aiter(runtime.changes())
            first = asyncio.ensure_future(anext(changes))
            await relisted.wait()
            server.answers["ListPodSandbox"] = cri.ListPodSandboxResponse(items=[there])
            if server.news is not None:
                server.news.put_nowait(cri.ContainerEventResponse(container_id="s"))
            assert await asyncio.wait_for(first, 30) == "u1"
            assert [interval_s is None for _, _, interval_s in relists][:2] == [True, False]
            assert all(abs(at_s - time.time()) < 60 and duration_s > 0 for at_s, duration_s, _ in relists)
            await changes.aclose()  # type: ignore[attr-defined]  # it is a generator
            await runtime.close()

    asyncio.run(watch())


def test_images_are_pulled_with_credentials(tmp_path: Path) -> None:
    server = FakeCRIServer()
    server.answers["PullImage"] = cri.PullImageResponse(image_ref="sha256:1")

    async def run() -> None:
        async with cri_endpoint(server, tmp_path / "cri.sock") as endpoint:
            line = CRIChannel(endpoint)
            images = CRIImageStore(line)
            assert await images.pull("reg.example/web:1", Credentials("ann", "secret")) == "sha256:1"
            await images.pull("reg.example/web:1")
            await line.close()

    asyncio.run(run())
    first, second = server.asked
    assert isinstance(first, cri.PullImageRequest)
    assert isinstance(second, cri.PullImageRequest)
    assert (first.auth.username, first.auth.password) == ("ann", "secret")
    assert not second.HasField("auth")


def test_a_runtime_class_is_the_runtimes_own_handler(tmp_path: Path) -> None:
    server = FakeCRIServer()
    server.answers["ListPodSandbox"] = cri.ListPodSandboxResponse()
    server.answers["RunPodSandbox"] = cri.RunPodSandboxResponse(pod_sandbox_id="s1")
    handlers: dict[str, str] = {}
    pod_sandbox_config = PodSandboxConfig(pod=POD, attempt=0, cgroup_parent="/x", log_directory="/y")

    async def run() -> None:
        async with cri_endpoint(server, tmp_path / "cri.sock") as endpoint:
            runtime = CRIRuntime(CRIChannel(endpoint), handlers=lambda: handlers)
            with pytest.raises(HostError, match=r'runtimeclass\.node\.k8s\.io "small" not found'):
                await runtime.run_sandbox(pod_sandbox_config)
            handlers["small"] = "kata"
            assert await runtime.run_sandbox(pod_sandbox_config) == "s1"
            await runtime.close()

    asyncio.run(run())
    message = server.asked[-1]
    assert isinstance(message, cri.RunPodSandboxRequest)
    assert message.runtime_handler == "kata"
