"""A container runtime whose containers exist in name only, so that a real kubelet can run pods of a made-up machine."""

import asyncio
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager
from itertools import count
from pathlib import Path
from typing import Any

from tests.support.fake_servers import FakeCRIServer, cri_endpoint

from nodewright.agent.runtimes.cri import api_pb2 as cri

IMAGE = "registry.test/app:1"
ENDS = "init"
"""Containers with names that begin so have ended as soon as they are started."""


class NominalRuntime(FakeCRIServer):
    """Sandboxes and containers as records; every image is there, and no limit has an effect."""

    def __init__(self, root: Path) -> None:
        super().__init__("nominal")
        self._ids = count(1)
        self._sandboxes: dict[str, Any] = {}
        self._containers: dict[str, Any] = {}
        is_ready = [cri.RuntimeCondition(type=name, status=True) for name in ("RuntimeReady", "NetworkReady")]
        image = cri.Image(id="sha256:1", repo_tags=[IMAGE], size=1)
        usage = cri.FilesystemUsage(
            timestamp=time.time_ns(), fs_id=cri.FilesystemIdentifier(mountpoint=str(root))
        )
        usage.used_bytes.value = usage.inodes_used.value = 1
        version = cri.VersionResponse(version="0.1.0", runtime_name="nominal")
        version.runtime_version, version.runtime_api_version = "1.0.0", "v1"
        self.answers |= {
            "Version": version,
            "Status": cri.StatusResponse(status=cri.RuntimeStatus(conditions=is_ready)),
            "ImageStatus": cri.ImageStatusResponse(image=image),
            "ListImages": cri.ListImagesResponse(images=[image]),
            "ImageFsInfo": cri.ImageFsInfoResponse(image_filesystems=[usage], container_filesystems=[usage]),
            "RunPodSandbox": self._run_sandbox,
            "StopPodSandbox": self._stop_sandbox,
            "RemovePodSandbox": self._remove_sandbox,
            "ListPodSandbox": self._list_sandboxes,
            "PodSandboxStatus": self._sandbox_status,
            "CreateContainer": self._create_container,
            "StartContainer": self._start_container,
            "StopContainer": self._stop_container,
            "RemoveContainer": self._remove_container,
            "ListContainers": self._list_containers,
            "ContainerStatus": self._container_status,
            "UpdateContainerResources": cri.UpdateContainerResourcesResponse(),
            "ListContainerStats": cri.ListContainerStatsResponse(),
        }

    def _run_sandbox(self, request: Any) -> Any:
        key, config = f"sandbox-{next(self._ids)}", request.config
        self._sandboxes[key] = cri.PodSandboxStatus(
            id=key,
            metadata=config.metadata,
            state=cri.SANDBOX_READY,
            created_at=time.time_ns(),
            network=cri.PodSandboxNetworkStatus(ip="10.0.0.9"),
            labels=config.labels,
            annotations=config.annotations,
        )
        return cri.RunPodSandboxResponse(pod_sandbox_id=key)

    def _stop_sandbox(self, request: Any) -> Any:
        if request.pod_sandbox_id in self._sandboxes:
            self._sandboxes[request.pod_sandbox_id].state = cri.SANDBOX_NOTREADY
        return cri.StopPodSandboxResponse()

    def _remove_sandbox(self, request: Any) -> Any:
        self._sandboxes.pop(request.pod_sandbox_id, None)
        return cri.RemovePodSandboxResponse()

    def _list_sandboxes(self, request: Any) -> Any:
        wanted, listed = request.filter, []
        for status in self._sandboxes.values():
            has_labels = all(status.labels.get(key) == text for key, text in wanted.label_selector.items())
            is_wanted = not wanted.HasField("state") or wanted.state.state == status.state
            if wanted.id in ("", status.id) and has_labels and is_wanted:
                item = cri.PodSandbox(id=status.id, metadata=status.metadata, state=status.state)
                item.created_at = status.created_at
                item.labels.update(status.labels)
                item.annotations.update(status.annotations)
                listed.append(item)
        return cri.ListPodSandboxResponse(items=listed)

    def _sandbox_status(self, request: Any) -> Any:
        if request.pod_sandbox_id not in self._sandboxes:
            raise ValueError("not found")
        return cri.PodSandboxStatusResponse(status=self._sandboxes[request.pod_sandbox_id])

    def _create_container(self, request: Any) -> Any:
        key, config = f"container-{next(self._ids)}", request.config
        status = cri.ContainerStatus(
            id=key,
            metadata=config.metadata,
            state=cri.CONTAINER_CREATED,
            created_at=time.time_ns(),
            image=cri.ImageSpec(image=IMAGE),
            image_ref="sha256:1",
            labels=config.labels,
            annotations=config.annotations,
        )
        self._containers[key] = (request.pod_sandbox_id, status)
        return cri.CreateContainerResponse(container_id=key)

    def _start_container(self, request: Any) -> Any:
        _, status = self._containers[request.container_id]
        status.state, status.started_at = cri.CONTAINER_RUNNING, time.time_ns()
        if status.metadata.name.startswith(ENDS):
            self._end(status)
        return cri.StartContainerResponse()

    def _stop_container(self, request: Any) -> Any:
        if request.container_id in self._containers:
            self._end(self._containers[request.container_id][1])
        return cri.StopContainerResponse()

    @staticmethod
    def _end(status: Any) -> None:
        if status.state == cri.CONTAINER_RUNNING:
            status.state, status.finished_at, status.reason = (
                cri.CONTAINER_EXITED,
                time.time_ns(),
                "Completed",
            )

    def _remove_container(self, request: Any) -> Any:
        self._containers.pop(request.container_id, None)
        return cri.RemoveContainerResponse()

    def _list_containers(self, request: Any) -> Any:
        wanted, listed = request.filter, []
        for sandbox, status in self._containers.values():
            has_labels = all(status.labels.get(key) == text for key, text in wanted.label_selector.items())
            is_wanted = not wanted.HasField("state") or wanted.state.state == status.state
            if not (has_labels and is_wanted and wanted.pod_sandbox_id in ("", sandbox)):
                continue
            if wanted.id in ("", status.id):
                item = cri.Container(id=status.id, pod_sandbox_id=sandbox, metadata=status.metadata)
                item.image.CopyFrom(status.image)
                item.image_ref, item.state = status.image_ref, status.state
                item.created_at = status.created_at
                item.labels.update(status.labels)
                item.annotations.update(status.annotations)
                listed.append(item)
        return cri.ListContainersResponse(containers=listed)

    def _container_status(self, request: Any) -> Any:
        if request.container_id not in self._containers:
            raise ValueError("not found")
        return cri.ContainerStatusResponse(status=self._containers[request.container_id][1])


@contextmanager
def nominal_runtime(folder: Path) -> Iterator[str]:
    """The endpoint of such a runtime, which serves in a thread of its own."""
    loop, is_up, endpoint = asyncio.new_event_loop(), threading.Event(), f"unix://{folder}/cri.sock"
    stop = asyncio.Event()

    async def serve() -> None:
        async with cri_endpoint(NominalRuntime(folder), folder / "cri.sock"):
            is_up.set()
            await stop.wait()

    thread = threading.Thread(target=loop.run_until_complete, args=(serve(),))
    thread.start()
    try:
        assert is_up.wait(30)
        yield endpoint
    finally:
        loop.call_soon_threadsafe(stop.set)
        thread.join()
        loop.close()
