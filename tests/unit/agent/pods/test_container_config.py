"""How much files in memory may take, and whose processes an ephemeral container sees."""

import asyncio
from pathlib import Path
from typing import Any

import pytest
from msgspec.structs import replace
from tests.support.agent_bench import AgentBench
from tests.support.fake_clock import settle

from nodewright.agent.host.eviction_readings import DiskStorageStats
from nodewright.agent.host.ports import ContainerConfig, Mount, PodSandboxConfig
from nodewright.agent.host.volumes import Volumes
from nodewright.agent.pods.config_object_cache import ConfigObjectCache
from nodewright.agent.pods.container_config import (
    NO_RECURSIVE_READ_ONLY,
    PATH,
    ContainerConfigBuilder,
    NodeContext,
    ProcessConfigBuilder,
)
from nodewright.agent.pods.container_lifecycle import ContainerConfigError
from nodewright.agent.pods.volume_setup import tmpfs_size_bytes
from nodewright.agent.state.agent_state import PodSource
from nodewright.documents.formats.decode import decode
from nodewright.engine.core.cgroups.cgroup_facts import ContainerSettings, KilledTogether
from nodewright.engine.core.cgroups.cgroup_plan import CgroupFile
from nodewright.model.kubernetes.cluster_objects import ConfigMap, Secret
from nodewright.model.kubernetes.objects import Container, EphemeralContainer, ObjectMeta, Pod
from nodewright.model.kubernetes.recorded_events import RecordEvent
from nodewright.model.kubernetes.runtime_status import (
    ContainerPhase,
    RuntimeContainerStatus,
    RuntimePodStatus,
    RuntimeSandboxStatus,
)
from nodewright.testing.objects import a_pod, amounts

SIZES = """
    node 1Gi   pod -      own -      -> 1024
    node 1Gi   pod -      own 64Mi   -> 64
    node 1Gi   pod 256Mi  own -      -> 256
    node 1Gi   pod 256Mi  own 512Mi  -> 256
    node 1Gi   pod 4Gi    own 2Gi    -> 1024
"""


@pytest.mark.parametrize("line", SIZES.strip().splitlines())
def test_memory_for_files_is_what_the_pod_may_use(line: str) -> None:
    _, node, _, limit, _, own, _, expected = line.split()
    pod = a_pod("web", "", {} if limit == "-" else {"memory": limit})
    volume = {"emptyDir": {"medium": "Memory", **({} if own == "-" else {"sizeLimit": own})}}
    assert tmpfs_size_bytes(pod, volume, amounts(f"memory={node}")) == int(expected) * 2**20
    whole = a_pod("web", resources={"limits": {"memory": "1Mi"}})
    assert tmpfs_size_bytes(whole, {"emptyDir": {}}, {}) == 2**20


def test_an_ephemeral_container_needs_its_target(tmp_path: Path) -> None:
    bench = Bench(tmp_path)
    pod = a_pod_with()
    debugger = EphemeralContainer(name="debug", image="i", target_container_name="main")
    status = facts(pod, "10.0.0.7")
    with pytest.raises(ContainerConfigError, match="unable to find target container main"):
        run(bench.containers.container_config(pod, debugger, 0, SETTINGS, status))
    running = RuntimeContainerStatus(
        id="c1", name="main", attempt=0, phase=ContainerPhase.RUNNING, sandbox_id="s"
    )
    config = run(
        bench.containers.container_config(pod, debugger, 0, SETTINGS, replace(status, containers=(running,)))
    )
    assert config.target_id == "c1"


SETTINGS = (ContainerSettings(), (CgroupFile("memory.oom.group", "1", KilledTogether()),))
run = asyncio.run


class Bench:
    """Both composers over a directory."""

    def __init__(self, root: Path) -> None:
        self.root, self.object_cache = root, ConfigObjectCache()
        resolv = root / "resolv.conf"
        resolv.write_text("nameserver 192.0.2.53\nsearch example.com\n")
        node_context = NodeContext(
            log_root=root / "logs",
            allocatable=amounts("cpu=8 memory=1Gi"),
            host_ips=("192.0.2.1",),
            cluster_domain="cluster.local",
            resolv_conf=str(resolv),
        )
        volumes = Volumes(root / "pods", None)
        self.processes = ProcessConfigBuilder(node_context, volumes, self.object_cache)
        self.containers = ContainerConfigBuilder(node_context, volumes, self.object_cache, self._image_of)

    async def _image_of(self, pod: Pod, container: Container) -> str:
        del pod
        if container.image == "none":
            raise ContainerConfigError("no such image", "ErrImageNeverPull")
        return f"sha256:{container.image}"

    def put(self, **texts: str) -> None:
        meta = ObjectMeta(name="conf", namespace="default")
        self.object_cache.put(
            PodSource.FILE, "x", [ConfigMap(metadata=meta, data=texts)], [Secret(metadata=meta)]
        )

    def process(self, pod: Pod, attempt: int = 0) -> ContainerConfig:
        (container,) = pod.spec.containers
        return run(self.processes.container_config(pod, container, attempt, SETTINGS, facts(pod)))

    def contained(self, pod: Pod, ip: str = "10.0.0.7") -> ContainerConfig:
        (container,) = pod.spec.containers
        return run(self.containers.container_config(pod, container, 0, SETTINGS, facts(pod, ip)))

    def refused(self, pod: Pod) -> str:
        """Why both say no, or the one that gets so far."""
        with pytest.raises(ContainerConfigError) as caught:
            self.contained(pod)
        return str(caught.value).replace(str(self.root), "ROOT")

    def shown(self, pod: Pod, ip: str = "10.0.0.7") -> dict[str, str]:
        """What is mounted where in a container."""
        document = {mount.container_path: mount for mount in self.contained(pod, ip).mounts}
        return {
            path: one.host_path.replace(str(self.root), "ROOT") + (" ro" if one.is_read_only else "")
            for path, one in document.items()
            if path not in ("/etc/hosts", "/dev/termination-log")
        }


def facts(pod: Pod, ip: str = "") -> RuntimePodStatus:
    sandbox = RuntimeSandboxStatus(id="s", ip=ip)
    return RuntimePodStatus(uid=pod.uid, namespace="default", name=pod.metadata.name, sandboxes=(sandbox,))


def a_pod_with(*, volumes: list[dict[str, Any]] | None = None, **container: Any) -> Pod:
    pod = a_pod(volumes=volumes or [])
    main = decode({"name": "main", "command": ["run"], **container}, Container)
    return replace(pod, spec=replace(pod.spec, containers=(main,)))


def mounted(path: str, **more: Any) -> list[dict[str, Any]]:
    return [{"name": "v", "mountPath": path, **more}]


@pytest.fixture
def bench(tmp_path: Path) -> Bench:
    return Bench(tmp_path)


# ---------------------------------------------------------------- plain processes


def test_a_process_has_its_command_with_its_variables(bench: Bench) -> None:
    bench.put(a="1")
    config = bench.process(
        a_pod_with(
            command=["sh", "-c"],
            args=["echo $(A) $(IP) $(B)"],
            env=[
                {"name": "A", "valueFrom": {"configMapKeyRef": {"name": "conf", "key": "a"}}},
                {"name": "IP", "valueFrom": {"fieldRef": {"fieldPath": "status.podIP"}}},
                {"name": "HOME", "value": "/srv"},
            ],
        ),
        attempt=3,
    )
    assert (config.command, config.args) == (("sh", "-c"), ("echo 1 192.0.2.1 $(B)",))
    assert (config.env["A"], config.env["HOME"], config.env["PATH"]) == ("1", "/srv", PATH)
    assert (config.working_dir, config.log_path, config.cgroup_files) == ("/", "main/3.log", SETTINGS[1])
    words = bench.root / "pods/web/containers/main/3"
    assert config.mounts == (Mount(host_path=str(words), container_path="/dev/termination-log"),)
    assert config.env["TERMINATION_MESSAGE_PATH"] == str(words)
    assert words.stat().st_mode & 0o777 == 0o666


def test_termination_messages_are_kept_as_long_as_they_may_be_read(bench: Bench) -> None:
    for attempt in range(4):
        bench.process(a_pod_with(), attempt)
    assert sorted(path.name for path in (bench.root / "pods/web/containers/main").iterdir()) == ["2", "3"]


def test_what_cannot_be_put_together_is_in_the_status_of_the_container(bench: Bench) -> None:
    async def check() -> tuple[str, str]:
        async with AgentBench() as agent:
            agent.loop.effect_runner.config_builder = bench.containers
            await agent.add_pods(a_pod_with(image="none"))
            (status,) = agent.record("web").status.container_statuses
            assert status.state.waiting is not None
            return status.state.waiting.reason, status.state.waiting.message

    assert run(check()) == ("ErrImageNeverPull", "no such image")


def test_a_process_needs_a_command(bench: Bench) -> None:
    with pytest.raises(ContainerConfigError, match="container main: no command specified"):
        bench.process(a_pod_with(command=[]))


def test_a_process_cannot_be_kept_from_writing_to_a_volume(bench: Bench) -> None:
    own = str(bench.root)
    mounts = mounted(own, readOnly=True)
    with pytest.raises(ContainerConfigError, match=f"readOnly cannot be enforced at {own}; remove it"):
        bench.process(a_pod_with(volumes=[{"name": "v", "hostPath": {"path": own}}], volumeMounts=mounts))


def test_a_process_sees_paths_of_the_machine_only_where_they_are(bench: Bench) -> None:
    own = str(bench.root)
    volumes = [{"name": "v", "hostPath": {"path": own}}]
    seen = bench.process(a_pod_with(volumes=volumes, volumeMounts=mounted(own))).mounts
    assert seen[0] == Mount(host_path=own, container_path=own)
    below = mounted(f"{own}/logs", subPath="logs")
    assert bench.process(a_pod_with(volumes=volumes, volumeMounts=below)).mounts[0].host_path == f"{own}/logs"
    for volume in (volumes[0], {"name": "v", "emptyDir": {}}):
        with pytest.raises(
            ContainerConfigError, match=r"cannot be mounted at /data; set mountPath to the same path"
        ):
            bench.process(a_pod_with(volumes=[volume], volumeMounts=mounted("/data")))


def test_a_volume_is_at_its_documented_path(bench: Bench) -> None:
    place = f"{bench.root}/pods/web/volumes/kubernetes.io~empty-dir/v"
    pod = a_pod_with(volumes=[{"name": "v", "emptyDir": {}}], volumeMounts=mounted(place))
    assert bench.process(pod).mounts[0].container_path == place
    assert Path(place).is_dir()


def test_the_sandbox_of_processes(bench: Bench) -> None:
    config = run(bench.processes.sandbox_config(a_pod(), 1, "/pods/web"))
    logs = f"{bench.root}/logs/default_web_web"
    assert config == PodSandboxConfig(pod=a_pod(), attempt=1, cgroup_parent="/pods/web", log_directory=logs)


def test_a_uid_that_leads_elsewhere_is_refused(bench: Bench) -> None:
    pod = a_pod(metadata={"uid": "../x"})
    for composer in (bench.processes, bench.containers):
        with pytest.raises(ContainerConfigError, match="cannot be the name of a directory"):
            run(composer.sandbox_config(pod, 0, ""))


# ---------------------------------------------------------------- containers


def test_a_container_may_leave_all_to_its_image(bench: Bench) -> None:
    config = bench.contained(a_pod_with(image="nginx", command=[]))
    assert (config.image, config.command, config.env, config.working_dir) == ("sha256:nginx", (), {}, "")
    with pytest.raises(ContainerConfigError) as caught:
        bench.contained(a_pod_with(image="none"))
    assert caught.value.reason == "ErrImageNeverPull"


def test_volumes_are_mounted_at_the_containers_mount_paths(bench: Bench) -> None:
    bench.put(a="1", b="2")
    pod = a_pod_with(
        volumes=[
            {"name": "empty", "emptyDir": {}},
            {"name": "host", "hostPath": {"path": str(bench.root)}},
            {"name": "conf", "configMap": {"name": "conf"}},
            {"name": "secret", "secret": {"secretName": "conf"}},
            {
                "name": "me",
                "downwardAPI": {"items": [{"path": "n", "fieldRef": {"fieldPath": "metadata.name"}}]},
            },
        ],
        volumeMounts=[
            {"name": "empty", "mountPath": "/empty", "readOnly": True},
            {"name": "host", "mountPath": "host", "mountPropagation": "HostToContainer"},
            {"name": "conf", "mountPath": "/conf"},
            {"name": "conf", "mountPath": "/etc/b", "subPathExpr": "$(FILE)"},
            {"name": "secret", "mountPath": "/secret"},
            {"name": "me", "mountPath": "/me"},
        ],
        env=[{"name": "FILE", "value": "b"}],
    )
    shown, volumes = bench.shown(pod), "ROOT/pods/web/volumes/kubernetes.io~"
    alone = shown.pop("/etc/b").removesuffix(" ro").replace("ROOT", str(bench.root))
    assert Path(alone).read_text() == "2"
    assert shown == {
        "/empty": f"{volumes}empty-dir/empty ro",
        "/host": "ROOT",
        "/conf": f"{volumes}configmap/conf ro",
        "/secret": f"{volumes}secret/secret ro",
        "/me": f"{volumes}downward-api/me ro",
    }
    assert (bench.root / "pods/web/volumes/kubernetes.io~downward-api/me/n").read_text() == "web"
    assert bench.contained(pod).mounts[1].propagation == "HostToContainer"


def test_changed_objects_refresh_the_volumes_that_use_them(bench: Bench) -> None:
    bench.put(a="1")
    volumes = [{"name": "v", "configMap": {"name": "conf"}}, {"name": "w", "configMap": {"name": "conf"}}]
    pod = a_pod_with(volumes=volumes, volumeMounts=mounted("/conf"))
    bench.contained(pod)
    bench.put(a="2")
    run(bench.containers.refresh_volumes([pod]))
    place = bench.root / "pods/web/volumes/kubernetes.io~configmap"
    assert [path.name for path in place.iterdir()] == ["v"]
    assert (place / "v/a").read_text() == "2"
    bench.object_cache.put(PodSource.FILE, "x", [], [])
    run(bench.containers.refresh_volumes([pod]))
    assert (place / "v/a").read_text() == "2"


def test_pods_are_refreshed_when_objects_change(bench: Bench) -> None:
    async def check() -> list[str]:
        texts: list[str] = []
        volumes = [{"name": "v", "configMap": {"name": "conf"}}]
        pod = a_pod_with(volumes=volumes, volumeMounts=mounted("/conf"))
        (container,) = pod.spec.containers
        bench.put(a="1")
        await bench.containers.container_config(pod, container, 0, SETTINGS, facts(pod))
        task = asyncio.create_task(bench.containers.watch_config_objects(lambda: [pod], texts.append))
        await settle()
        bench.put(a="2")
        await settle()
        place = bench.root / "pods/web/volumes/kubernetes.io~configmap/v"
        assert (place / "a").read_text() == "2"
        (place / "..data").unlink()
        (place / "..data").mkdir()
        bench.put(a="3")
        await settle()
        task.cancel()
        await asyncio.gather(task, return_exceptions=True)
        return texts

    (text,) = run(check())
    assert text.startswith("write ")


NO_RIGHTS = "needs a mount, which the agent is not permitted to make"
RECURSIVE = NO_RECURSIVE_READ_ONLY.format(name="v")
REFUSED: tuple[tuple[dict[str, Any] | None, dict[str, Any], str], ...] = (
    (None, {"mountPath": "/x"}, 'cannot find volume "v" to mount into container "main"'),
    (
        {"configMap": {"name": "no"}},
        {"mountPath": "/x"},
        'MountVolume.SetUp failed for volume "v" : configmap "no" not found',
    ),
    (
        {"hostPath": {"path": "/no/such", "type": "Directory"}},
        {"mountPath": "/x"},
        'MountVolume.SetUp failed for volume "v" : hostPath type check failed: /no/such is not a directory',
    ),
    (
        {"nfs": {"server": "s"}},
        {"mountPath": "/x"},
        'MountVolume.SetUp failed for volume "v" : volumes of type nfs are not supported',
    ),
    (
        {"emptyDir": {"medium": "Memory"}},
        {"mountPath": "/x"},
        f'MountVolume.SetUp failed for volume "v" : emptyDir v in memory {NO_RIGHTS}',
    ),
    (
        {"emptyDir": {}},
        {"mountPath": "/x", "subPath": "../y"},
        "unable to provision SubPath `../y`: must not contain '..'",
    ),
    ({"emptyDir": {}}, {"mountPath": "/x", "subPathExpr": "$(NO)"}, "missing value for NO"),
    (
        {"emptyDir": {}},
        {"mountPath": "/x", "subPath": "a"},
        f'MountVolume.SetUp failed for volume "v" : subPath a of volume v {NO_RIGHTS}',
    ),
    (
        {"hostPath": {"path": "/proc/self"}},
        {"mountPath": "/x", "subPath": "root"},
        'failed to prepare subPath for volumeMount "v" of container "main"',
    ),
    ({"emptyDir": {}}, {"mountPath": "/v", "readOnly": True, "recursiveReadOnly": "Enabled"}, RECURSIVE),
)


@pytest.mark.parametrize(("volume", "mount", "message"), REFUSED)
def test_an_unsupported_mount_is_an_error(
    bench: Bench, volume: dict[str, Any] | None, mount: dict[str, Any], message: str
) -> None:
    volumes = [{"name": "v", **volume}] if volume is not None else []
    assert bench.refused(a_pod_with(volumes=volumes, volumeMounts=[{"name": "v", **mount}])) == message


def test_missing_variables_are_errors(bench: Bench) -> None:
    document = {"secretKeyRef": {"name": "no", "key": "a"}}
    assert bench.refused(a_pod_with(env=[{"name": "A", "valueFrom": document}])) == 'secret "no" not found'


def test_variables_come_from_files_in_volumes(bench: Bench) -> None:
    bench.put(vars="A='1'\n")
    document = {"fileKeyRef": {"volumeName": "v", "path": "vars", "key": "A"}}
    volumes = [{"name": "v", "configMap": {"name": "conf"}}]
    assert bench.contained(a_pod_with(volumes=volumes, env=[{"name": "A", "valueFrom": document}])).env == {
        "A": "1"
    }
    document["fileKeyRef"]["path"] = "../../../../x"
    pod = a_pod_with(volumes=volumes, env=[{"name": "A", "valueFrom": document}])
    assert bench.refused(pod) == "couldn't parse env file"
    document["fileKeyRef"]["volumeName"] = "w"
    assert bench.refused(a_pod_with(env=[{"name": "A", "valueFrom": document}])).startswith(
        "cannot find the volume"
    )


def hosts(bench: Bench, pod: Pod, ip: str = "10.0.0.7") -> str:
    mounts = {mount.container_path: mount.host_path for mount in bench.contained(pod, ip).mounts}
    return Path(mounts["/etc/hosts"]).read_text() if "/etc/hosts" in mounts else ""


def test_a_container_knows_its_own_name(bench: Bench) -> None:
    assert hosts(bench, a_pod_with()).endswith("\n10.0.0.7\tweb\n")
    assert hosts(bench, a_pod_with(), ip="") == ""
    pod = a_pod_with()
    with_host = replace(pod, spec=replace(pod.spec, host_network=True))
    assert hosts(bench, with_host).startswith("# Kubernetes-managed hosts file (host network).\n")
    volumes = [{"name": "v", "hostPath": {"path": "/etc/hosts"}}]
    own = a_pod_with(volumes=volumes, volumeMounts=mounted("/etc/hosts"))
    assert [mount.host_path for mount in bench.contained(own).mounts][:1] == ["/etc/hosts"]


def test_the_sandbox_of_containers(bench: Bench) -> None:
    named_pod = a_pod(hostname="front", subdomain="shop", setHostnameAsFQDN=True)
    events: list[RecordEvent] = []
    bench.containers.record_event = events.append
    config = run(bench.containers.sandbox_config(named_pod, 0, "/g"))
    assert [(event.uid, event.reason) for event in events] == [
        (uid, "MissingClusterDNS") for uid in ("", "web")
    ]
    assert config.hostname == "front.shop.default.svc.cluster.local"
    assert config.resolv_conf == "search example.com\nnameserver 192.0.2.53\n"
    assert Path(config.log_directory).is_dir()
    assert run(bench.containers.sandbox_config(a_pod(hostNetwork=True), 0, "/g")).hostname == ""
    with pytest.raises(ContainerConfigError, match=r"FQDN w+\.shop.default.svc.cluster.local is too long"):
        run(bench.containers.sandbox_config(a_pod("w" * 60, subdomain="shop", setHostnameAsFQDN=True), 0, ""))


def test_nothing_is_left_of_a_pod(bench: Bench) -> None:
    pod = a_pod_with(volumes=[{"name": "v", "emptyDir": {}}], volumeMounts=mounted("/x"))
    bench.contained(pod)
    run(bench.containers.sandbox_config(pod, 0, ""))
    used = DiskStorageStats(bench.containers.storage_paths).pod_usage(pod)
    assert [volume.name for volume in used.volumes] == ["v"]
    assert used.ephemeral_storage is not None
    assert used.ephemeral_storage.inodes_used == 2
    run(bench.containers.remove_pod_files(pod))
    assert list((bench.root / "pods").iterdir()) == list((bench.root / "logs").iterdir()) == []
