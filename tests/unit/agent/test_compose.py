"""What runtimes are asked for: for plain processes and for containers, and what is said when it cannot be put together."""

import asyncio
from pathlib import Path
from typing import Any

import pytest
from msgspec.structs import replace

from nodewright.agent.compose import PATH, ContainerComposer, ProcessComposer
from nodewright.agent.composing import Site
from nodewright.agent.shelf import Shelf
from nodewright.agent.starting import ConfigError
from nodewright.agent.values import Source
from nodewright.core.cgroups.facts import ContainerSettings, KilledTogether
from nodewright.core.cgroups.files import File
from nodewright.model.config_objects import ConfigMap, Secret
from nodewright.model.objects import Container, ObjectMeta, Pod
from nodewright.model.running import PodFacts, SandboxFacts
from nodewright.testing.agents import AgentBench
from nodewright.testing.objects import a_pod, amounts
from nodewright.testing.runtime import settle
from nodewright.world.decode import decode
from nodewright.world.local_storage import DiskStorage
from nodewright.world.ports import ContainerWish, Mount, SandboxWish
from nodewright.world.volumes import Volumes

SETTINGS = (ContainerSettings(), (File("memory.oom.group", "1", KilledTogether()),))
run = asyncio.run


class Bench:
    """Both composers over a directory."""

    def __init__(self, root: Path) -> None:
        self.root, self.shelf = root, Shelf()
        resolv = root / "resolv.conf"
        resolv.write_text("nameserver 192.0.2.53\nsearch example.com\n")
        site = Site(
            log_root=root / "logs",
            allocatable=amounts("cpu=8 memory=1Gi"),
            host_ips=("192.0.2.1",),
            cluster_domain="cluster.local",
            resolv_conf=str(resolv),
        )
        volumes = Volumes(root / "pods", None)
        self.processes = ProcessComposer(site, volumes, self.shelf)
        self.containers = ContainerComposer(site, volumes, self.shelf, self._image_of)

    async def _image_of(self, pod: Pod, container: Container) -> str:
        del pod
        if container.image == "none":
            raise ConfigError("no such image", "ErrImageNeverPull")
        return f"sha256:{container.image}"

    def put(self, **texts: str) -> None:
        meta = ObjectMeta(name="conf", namespace="default")
        self.shelf.put(Source.FILE, "x", [ConfigMap(metadata=meta, data=texts)], [Secret(metadata=meta)])

    def process(self, pod: Pod, attempt: int = 0) -> ContainerWish:
        (container,) = pod.spec.containers
        return run(self.processes.container(pod, container, attempt, SETTINGS, facts(pod)))

    def contained(self, pod: Pod, ip: str = "10.0.0.7") -> ContainerWish:
        (container,) = pod.spec.containers
        return run(self.containers.container(pod, container, 0, SETTINGS, facts(pod, ip)))

    def refused(self, pod: Pod) -> str:
        """Why both say no, or the one that gets so far."""
        with pytest.raises(ConfigError) as caught:
            self.contained(pod)
        return str(caught.value).replace(str(self.root), "ROOT")

    def shown(self, pod: Pod, ip: str = "10.0.0.7") -> dict[str, str]:
        """What is mounted where in a container."""
        found = {one.container_path: one for one in self.contained(pod, ip).mounts}
        return {
            path: one.host_path.replace(str(self.root), "ROOT") + (" ro" if one.is_read_only else "")
            for path, one in found.items()
            if path not in ("/etc/hosts", "/dev/termination-log")
        }


def facts(pod: Pod, ip: str = "") -> PodFacts:
    sandbox = SandboxFacts(id="s", ip=ip)
    return PodFacts(uid=pod.uid, namespace="default", name=pod.metadata.name, sandboxes=(sandbox,))


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
    wish = bench.process(
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
    assert (wish.command, wish.args) == (("sh", "-c"), ("echo 1 192.0.2.1 $(B)",))
    assert (wish.env["A"], wish.env["HOME"], wish.env["PATH"]) == ("1", "/srv", PATH)
    assert (wish.working_dir, wish.log_path, wish.files) == ("/", "main/3.log", SETTINGS[1])
    words = bench.root / "pods/web/containers/main/3"
    assert wish.mounts == (Mount(host_path=str(words), container_path="/dev/termination-log"),)
    assert wish.env["TERMINATION_MESSAGE_PATH"] == str(words)
    assert words.stat().st_mode & 0o777 == 0o666


def test_last_words_are_kept_as_long_as_somebody_may_ask(bench: Bench) -> None:
    for attempt in range(4):
        bench.process(a_pod_with(), attempt)
    assert sorted(one.name for one in (bench.root / "pods/web/containers/main").iterdir()) == ["2", "3"]


def test_what_cannot_be_put_together_is_in_the_status_of_the_container(bench: Bench) -> None:
    async def check() -> tuple[str, str]:
        async with AgentBench() as agent:
            agent.loop.performer.composer = bench.containers
            await agent.want(a_pod_with(image="none"))
            (status,) = agent.record("web").status.container_statuses
            assert status.state.waiting is not None
            return status.state.waiting.reason, status.state.waiting.message

    assert run(check()) == ("ErrImageNeverPull", "no such image")


def test_a_process_needs_a_command(bench: Bench) -> None:
    with pytest.raises(ConfigError, match="container main: no command specified"):
        bench.process(a_pod_with(command=[]))


def test_a_process_cannot_be_kept_from_writing_to_a_volume(bench: Bench) -> None:
    own = str(bench.root)
    mounts = mounted(own, readOnly=True)
    with pytest.raises(ConfigError, match=f"readOnly does not hold at {own}; take it away"):
        bench.process(a_pod_with(volumes=[{"name": "v", "hostPath": {"path": own}}], volumeMounts=mounts))


def test_a_process_sees_paths_of_the_machine_only_where_they_are(bench: Bench) -> None:
    own = str(bench.root)
    volumes = [{"name": "v", "hostPath": {"path": own}}]
    seen = bench.process(a_pod_with(volumes=volumes, volumeMounts=mounted(own))).mounts
    assert seen[0] == Mount(host_path=own, container_path=own)
    below = mounted(f"{own}/logs", subPath="logs")
    assert bench.process(a_pod_with(volumes=volumes, volumeMounts=below)).mounts[0].host_path == f"{own}/logs"
    for volume in (volumes[0], {"name": "v", "emptyDir": {}}):
        with pytest.raises(ConfigError, match=r"cannot be shown at /data; set mountPath to the same path"):
            bench.process(a_pod_with(volumes=[volume], volumeMounts=mounted("/data")))


def test_a_volume_is_where_it_is_said_to_be(bench: Bench) -> None:
    place = f"{bench.root}/pods/web/volumes/kubernetes.io~empty-dir/v"
    pod = a_pod_with(volumes=[{"name": "v", "emptyDir": {}}], volumeMounts=mounted(place))
    assert bench.process(pod).mounts[0].container_path == place
    assert Path(place).is_dir()


def test_the_sandbox_of_processes(bench: Bench) -> None:
    wish = run(bench.processes.sandbox(a_pod(), 1, "/pods/web"))
    logs = f"{bench.root}/logs/default_web_web"
    assert wish == SandboxWish(pod=a_pod(), attempt=1, cgroup_parent="/pods/web", log_directory=logs)


def test_a_uid_that_leads_elsewhere_is_refused(bench: Bench) -> None:
    pod = a_pod(metadata={"uid": "../x"})
    for composer in (bench.processes, bench.containers):
        with pytest.raises(ConfigError, match="cannot be the name of a directory"):
            run(composer.sandbox(pod, 0, ""))


# ---------------------------------------------------------------- containers


def test_a_container_may_leave_all_to_its_image(bench: Bench) -> None:
    wish = bench.contained(a_pod_with(image="nginx", command=[]))
    assert (wish.image, wish.command, wish.env, wish.working_dir) == ("sha256:nginx", (), {}, "")
    with pytest.raises(ConfigError) as caught:
        bench.contained(a_pod_with(image="none"))
    assert caught.value.reason == "ErrImageNeverPull"


def test_volumes_are_shown_where_the_container_wants_them(bench: Bench) -> None:
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


def test_objects_that_change_are_seen_by_those_who_have_them(bench: Bench) -> None:
    bench.put(a="1")
    volumes = [{"name": "v", "configMap": {"name": "conf"}}, {"name": "w", "configMap": {"name": "conf"}}]
    pod = a_pod_with(volumes=volumes, volumeMounts=mounted("/conf"))
    bench.contained(pod)
    bench.put(a="2")
    run(bench.containers.refresh([pod]))
    place = bench.root / "pods/web/volumes/kubernetes.io~configmap"
    assert [one.name for one in place.iterdir()] == ["v"]
    assert (place / "v/a").read_text() == "2"
    bench.shelf.put(Source.FILE, "x", [], [])
    run(bench.containers.refresh([pod]))
    assert (place / "v/a").read_text() == "2"


def test_pods_are_refreshed_when_objects_change(bench: Bench) -> None:
    async def check() -> list[str]:
        told: list[str] = []
        volumes = [{"name": "v", "configMap": {"name": "conf"}}]
        pod = a_pod_with(volumes=volumes, volumeMounts=mounted("/conf"))
        (container,) = pod.spec.containers
        bench.put(a="1")
        await bench.containers.container(pod, container, 0, SETTINGS, facts(pod))
        task = asyncio.create_task(bench.containers.keep_fresh(lambda: [pod], told.append))
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
        return told

    (said,) = run(check())
    assert said.startswith("write ")


NO_RIGHTS = "needs mounting, for which the agent has no rights"
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
        'MountVolume.SetUp failed for volume "v" : volumes of kind nfs cannot be had without a cluster',
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
)


@pytest.mark.parametrize(("volume", "mount", "message"), REFUSED)
def test_what_cannot_be_mounted_is_told(
    bench: Bench, volume: dict[str, Any] | None, mount: dict[str, Any], message: str
) -> None:
    volumes = [{"name": "v", **volume}] if volume is not None else []
    assert bench.refused(a_pod_with(volumes=volumes, volumeMounts=[{"name": "v", **mount}])) == message


def test_variables_that_lack_are_told(bench: Bench) -> None:
    told = {"secretKeyRef": {"name": "no", "key": "a"}}
    assert bench.refused(a_pod_with(env=[{"name": "A", "valueFrom": told}])) == 'secret "no" not found'


def test_variables_come_from_files_in_volumes(bench: Bench) -> None:
    bench.put(vars="A='1'\n")
    told = {"fileKeyRef": {"volumeName": "v", "path": "vars", "key": "A"}}
    volumes = [{"name": "v", "configMap": {"name": "conf"}}]
    assert bench.contained(a_pod_with(volumes=volumes, env=[{"name": "A", "valueFrom": told}])).env == {
        "A": "1"
    }
    told["fileKeyRef"]["path"] = "../../../../x"
    pod = a_pod_with(volumes=volumes, env=[{"name": "A", "valueFrom": told}])
    assert bench.refused(pod) == "couldn't parse env file"
    told["fileKeyRef"]["volumeName"] = "w"
    assert bench.refused(a_pod_with(env=[{"name": "A", "valueFrom": told}])).startswith(
        "cannot find the volume"
    )


def hosts(bench: Bench, pod: Pod, ip: str = "10.0.0.7") -> str:
    mounts = {one.container_path: one.host_path for one in bench.contained(pod, ip).mounts}
    return Path(mounts["/etc/hosts"]).read_text() if "/etc/hosts" in mounts else ""


def test_a_container_knows_its_own_name(bench: Bench) -> None:
    assert hosts(bench, a_pod_with()).endswith("\n10.0.0.7\tweb\n")
    assert hosts(bench, a_pod_with(), ip="") == ""
    pod = a_pod_with()
    with_host = replace(pod, spec=replace(pod.spec, host_network=True))
    assert hosts(bench, with_host).startswith("# Kubernetes-managed hosts file (host network).\n")
    volumes = [{"name": "v", "hostPath": {"path": "/etc/hosts"}}]
    own = a_pod_with(volumes=volumes, volumeMounts=mounted("/etc/hosts"))
    assert [one.host_path for one in bench.contained(own).mounts][:1] == ["/etc/hosts"]


def test_the_sandbox_of_containers(bench: Bench) -> None:
    wish = run(
        bench.containers.sandbox(a_pod(hostname="front", subdomain="shop", setHostnameAsFQDN=True), 0, "/g")
    )
    assert wish.hostname == "front.shop.default.svc.cluster.local"
    assert wish.resolv_conf == "search example.com\nnameserver 192.0.2.53\n"
    assert Path(wish.log_directory).is_dir()
    assert run(bench.containers.sandbox(a_pod(hostNetwork=True), 0, "/g")).hostname == ""


def test_nothing_is_left_of_a_pod(bench: Bench) -> None:
    pod = a_pod_with(volumes=[{"name": "v", "emptyDir": {}}], volumeMounts=mounted("/x"))
    bench.contained(pod)
    run(bench.containers.sandbox(pod, 0, ""))
    used = DiskStorage(bench.containers.places).of(pod)
    assert [one.name for one in used.volumes] == ["v"]
    assert used.ephemeral_storage is not None
    assert used.ephemeral_storage.inodes_used == 2
    run(bench.containers.forget(pod))
    assert list((bench.root / "pods").iterdir()) == list((bench.root / "logs").iterdir()) == []
