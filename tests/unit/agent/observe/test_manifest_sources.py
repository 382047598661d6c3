"""Pods from directories and URLs: what is taken, what is told, and what survives a broken file."""

import asyncio
import os
import time
from collections.abc import Callable
from pathlib import Path

import pytest

from nodewright.agent.observe import manifest_sources as manifest_sources
from nodewright.agent.observe.manifest_sources import (
    ManifestDirectory,
    SourceListener,
    watch_directory,
)
from nodewright.agent.observe.manifest_url import ManifestURL
from nodewright.agent.pods.config_object_cache import ConfigObjectCache
from nodewright.agent.state.agent_state import PodSource
from nodewright.agent.state.observations import Observation, SourcePodsListed
from nodewright.model.kubernetes.objects import Pod
from nodewright.model.kubernetes.runtime_status import RecordEvent

POD = """
apiVersion: v1
kind: Pod
metadata: {name: NAME, namespace: shop}
spec: {containers: [{name: app, image: "IMAGE"}]}
"""
AN_AGE_NS = 10 * 10**9


def pod(name: str = "web", image: str = "nginx") -> str:
    return POD.replace("NAME", name).replace("IMAGE", image)


class Published:
    """Hears all that a source says."""

    def __init__(self) -> None:
        self.pod_lists: list[tuple[Pod, ...]] = []
        self.warnings: list[str] = []
        self.object_cache = ConfigObjectCache()

    def listener(self) -> SourceListener:
        return SourceListener("Node-A", self._see, self._tell, self.object_cache)

    def _see(self, seen: Observation) -> None:
        assert isinstance(seen, SourcePodsListed)
        self.pod_lists.append(seen.pods)

    def _tell(self, warnings: RecordEvent) -> None:
        self.warnings.append(f"{warnings.reason}: {warnings.message}")

    @property
    def names(self) -> list[str]:
        """Of the pods that were told last."""
        return [pod.metadata.name for pod in self.pod_lists[-1]]


class Bench:
    """A directory that is looked at when told to; time has passed since its files were written."""

    def __init__(self, directory: Path, source: PodSource = PodSource.FILE) -> None:
        self.directory, self.published = directory, Published()
        self.manifests = ManifestDirectory(directory, source, self.published.listener())

    def write(self, name: str, text: str, *, age_ns: int = AN_AGE_NS) -> None:
        path = self.directory / name
        path.write_text(text)
        at = time.time_ns() - age_ns
        os.utime(path, ns=(at, at))

    def look(self, being_written: frozenset[str] = frozenset()) -> Published:
        asyncio.run(self.manifests.poll(being_written))
        return self.published


@pytest.fixture
def bench(tmp_path: Path) -> Bench:
    return Bench(tmp_path)


def test_a_manifest_is_a_static_pod_of_the_node(bench: Bench) -> None:
    bench.write("web.yaml", pod())
    ((found,),) = bench.look().pod_lists
    meta, spec = found.metadata, found.spec
    assert (meta.namespace, meta.name, spec.node_name) == ("shop", "web-node-a", "Node-A")
    assert len(meta.uid) == 32
    assert meta.annotations == {
        "kubernetes.io/config.hash": meta.uid,
        "kubernetes.io/config.source": "file",
    }
    assert [(toleration.key, toleration.operator, toleration.effect) for toleration in spec.tolerations] == [
        ("", "Exists", "NoExecute")
    ]
    assert (spec.restart_policy, spec.dns_policy, spec.termination_grace_period_seconds) == (
        "Always",
        "ClusterFirst",
        30,
    )
    (container,) = spec.containers
    assert (container.image_pull_policy, container.termination_message_path) == (
        "Always",
        "/dev/termination-log",
    )


def test_a_uid_depends_on_a_manifests_content_location_and_node(tmp_path: Path) -> None:
    uids = set()
    for name, text in (("a.yaml", pod()), ("b.yaml", pod()), ("c.yaml", pod(image="other"))):
        place = tmp_path / name.removesuffix(".yaml")
        place.mkdir()
        bench = Bench(place)
        bench.write(name, text)
        uids.add(bench.look().pod_lists[0][0].uid)
    assert len(uids) == 3
    again = Bench(tmp_path / "a")
    assert again.look().pod_lists[0][0].uid in uids


def test_a_uid_and_comments_change_nothing(bench: Bench) -> None:
    bench.write("web.yaml", pod().replace("name: web", "name: web, uid: mine"))
    bench.look()
    bench.write("web.yaml", "# comment\n" + pod().replace("name: web", "name: web, uid: mine"))
    assert [[pod.uid for pod in pods] for pods in bench.look().pod_lists] == [["mine"]]


def test_ordinary_pods_of_a_workload_directory_keep_their_names(tmp_path: Path) -> None:
    bench = Bench(tmp_path, PodSource.WORKLOAD)
    bench.write("web.yaml", pod())
    ((found,),) = bench.look().pod_lists
    assert (found.metadata.name, found.metadata.annotations, found.spec.node_name) == ("web", {}, "Node-A")
    assert found.spec.priority == 0


def test_files_come_and_go(bench: Bench) -> None:
    bench.write("a.yaml", pod("a"))
    bench.write(
        "b.json",
        '{"apiVersion": "v1", "kind": "Pod", "metadata": {"name": "b"}, "spec": {"containers": [{"name": "c", "image": "i"}]}}',
    )
    assert bench.look().names == ["a-node-a", "b-node-a"]
    bench.look()
    assert len(bench.published.pod_lists) == 1
    (bench.directory / "a.yaml").unlink()
    bench.look()
    assert bench.published.names == ["a-node-a", "b-node-a"]
    time.sleep(0.26)
    assert bench.look().names == ["b-node-a"]


def test_many_new_files_are_published_bit_by_bit_but_at_the_start_at_once(
    bench: Bench, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(manifest_sources, "_FILES_A_POLL", 2)
    for number in range(5):
        bench.write(f"{number}.yaml", pod(f"first-{number}"))
    bench.look()
    assert len(bench.published.names) == 5
    for number in range(5, 10):
        bench.write(f"{number}.yaml", pod(f"later-{number}"))
    steps = [(asyncio.run(bench.manifests.poll()) == 0, len(bench.published.names)) for _ in range(4)]
    assert steps == [(True, 7), (True, 9), (False, 10), (False, 10)]


def test_several_documents_and_lists_count(bench: Bench) -> None:
    items = "".join(
        f"- {{metadata: {{name: {name}}}, spec: {{containers: [{{name: c, image: i}}]}}}}\n" for name in "uv"
    )
    bench.write("all.yaml", f"{pod('a')}---{pod('b')}---\napiVersion: v1\nkind: PodList\nitems:\n{items}")
    assert bench.look().names == ["a-node-a", "b-node-a", "u-node-a", "v-node-a"]


def test_a_file_that_becomes_invalid_is_reported_once_and_its_pods_stay(bench: Bench) -> None:
    bench.write("web.yaml", pod())
    bench.look()
    bench.write("web.yaml", "{")
    bench.look()
    bench.look()
    assert bench.published.names == ["web-node-a"]
    assert [warning.partition(" ")[0] for warning in bench.published.warnings] == ["ManifestNotTaken:"]
    bench.write("web.yaml", pod(image="new"))
    assert bench.look().pod_lists[-1][0].spec.containers[0].image == "new"


def test_a_file_that_is_just_being_written_is_given_a_moment(bench: Bench) -> None:
    bench.write("web.yaml", pod())
    bench.look()
    bench.write("web.yaml", "apiVersion: v1\nkind: Po", age_ns=0)
    assert 0 < asyncio.run(bench.manifests.poll()) < 1.1
    bench.write("new.yaml", pod("new"))
    bench.look(frozenset({"new.yaml"}))
    assert (bench.published.names, bench.published.warnings) == (["web-node-a"], [])


@pytest.mark.parametrize("name", [".web.yaml", ".web.yaml.swp", "web.yaml~", "#web.yaml#", "web.yaml.tmp"])
def test_what_editors_leave_beside_manifests_is_none(bench: Bench, name: str) -> None:
    bench.write(name, pod())
    (bench.directory / "folder.yaml").mkdir()
    assert bench.look().pod_lists == [()]
    assert bench.published.warnings == []


REFUSED = {
    "spec: {serviceAccountName: robot, ": "static pods may not reference serviceaccounts",
    "spec: {volumes: [{name: v, persistentVolumeClaim: {claimName: c}}], ": "may not reference persistentvolumeclaims",
    "spec: {volumes: [{name: v, csi: {driver: d}}], ": "may not reference csidrivers (via CSI volumes)",
    "spec: {volumes: [{name: v, projected: {sources: [{serviceAccountToken: {path: t}}]}}], ": (
        "may not reference serviceaccounts (via projected volumes)"
    ),
    "spec: {resourceClaims: [{name: c, resourceClaimName: c}], ": "may not reference resourceclaims",
    "spec: {replicas: 1, ": "replicas",
}


@pytest.mark.parametrize("start", REFUSED)
def test_what_static_pods_cannot_have(bench: Bench, start: str) -> None:
    bench.write("web.yaml", pod().replace("spec: {", start))
    bench.write("good.yaml", pod("good"))
    published = bench.look()
    assert published.names == ["good-node-a"]
    assert REFUSED[start] in published.warnings[0]


@pytest.mark.parametrize(
    ("was", "becomes", "said"),
    [
        ("name: web, ", "", "metadata.name"),
        ("name: web", "uid: ../etc, name: web", "metadata.uid"),
        (pod(), "apiVersion: v1\nkind: Secret\nmetadata: {name: key}\ndata: {a: '%'}", "base64"),
        (pod(), "apiVersion: v1\nkind: ConfigMap\nmetadata: {name: conf}\ndata: {a: [1]}", "data"),
        ("kind: Pod", "kind: Pdo", "no such kind"),
        (pod(), "", "the file is empty"),
        (pod(), "[]", "an object is a mapping"),
    ],
)
def test_other_mistakes(bench: Bench, was: str, becomes: str, said: str) -> None:
    bench.write("web.yaml", pod().replace(was, becomes))
    assert said in bench.look().warnings[0]


def test_config_objects_beside_manifests_are_cached_and_other_kinds_reported(bench: Bench) -> None:
    bench.write(
        "all.yaml",
        "apiVersion: v1\nkind: ConfigMap\nmetadata: {name: conf}\ndata: {a: b}\n---\n"
        "apiVersion: v1\nkind: Secret\nmetadata: {name: key, namespace: shop}\ndata: {a: Yg==}\nstringData: {c: d}\n---\n"
        "apiVersion: apps/v1\nkind: Deployment\nmetadata: {name: d}\n"
        "spec: {selector: {matchLabels: {a: b}}, template: {metadata: {labels: {a: b}}, spec: {containers: "
        "[{name: c, image: i}]}}}\n",
    )
    published = bench.look()
    assert published.object_cache.config_maps("default")["conf"].data == {"a": "b"}
    assert published.object_cache.config_maps("shop") == {}
    assert published.object_cache.secrets("shop")["key"].content == {"a": b"b", "c": b"d"}
    assert published.object_cache.has_changed.is_set()
    assert published.object_cache.take_changes() is None
    bench.look()
    assert published.object_cache.take_changes() == frozenset()
    assert published.warnings == [
        f"ManifestPassedOver: {bench.directory}/all.yaml: Deployment default/d is ignored: not a Pod, ConfigMap, Secret or RuntimeClass"
    ]


def test_two_pods_of_one_name(bench: Bench) -> None:
    bench.write("a.yaml", pod())
    bench.write("b.yaml", pod(image="other"))
    published = bench.look()
    assert [pod.spec.containers[0].image for pod in published.pod_lists[-1]] == ["other"]
    assert "shop/web-node-a is defined more than once" in published.warnings[0]


def test_two_pods_of_one_uid(bench: Bench) -> None:
    for name in ("web", "other"):
        bench.write(f"{name}.yaml", pod(name).replace("namespace: shop", "namespace: shop, uid: same"))
    published = bench.look()
    assert len(published.names) == 1
    assert published.warnings == [
        f"ManifestRepeated: {bench.directory}: shop/web-node-a has the uid of shop/other-node-a (same); the last definition is used"
    ]


def test_the_fault_of_a_manifest_is_reported_in_one_line(bench: Bench) -> None:
    bench.write("bad.yaml", pod().replace("image", "imag").replace("name: app", "nam: app"))
    (warnings,) = bench.look().warnings
    assert warnings.count("; ") >= 1
    assert "\n" not in warnings


def test_a_missing_directory_means_no_pods_and_is_reported_once(tmp_path: Path) -> None:
    bench = Bench(tmp_path / "none")
    bench.look()
    bench.look()
    assert bench.published.pod_lists == [()]
    assert bench.published.warnings == [f"ManifestsNotRead: {tmp_path}/none: path does not exist, ignoring"]


def test_one_file_can_be_a_source(tmp_path: Path) -> None:
    (tmp_path / "web.yaml").write_text(pod())
    assert Bench(tmp_path / "web.yaml").look().names == ["web-node-a"]


async def until(condition: Callable[[], bool]) -> None:
    async with asyncio.timeout(60):
        while not condition():  # noqa: ASYNC110 - files have no event
            await asyncio.sleep(0.005)


@pytest.mark.slow
def test_a_directory_is_watched(tmp_path: Path) -> None:
    async def watched() -> None:
        published = Published()
        task = asyncio.create_task(watch_directory(tmp_path / "m", PodSource.FILE, published.listener()))
        await until(lambda: published.pod_lists == [()])
        (tmp_path / "m").mkdir()
        (tmp_path / "m" / "a.yaml").write_text(pod("a"))
        await until(lambda: published.names == ["a-node-a"])
        with (tmp_path / "m" / "b.yaml").open("w") as file:
            file.write(pod("b"))
            file.flush()
            (tmp_path / "m" / "c.yaml").write_text(pod("c"))
            await until(lambda: "c-node-a" in published.names)
            assert published.names == ["a-node-a", "c-node-a"]
        await until(lambda: published.names == ["a-node-a", "b-node-a", "c-node-a"])
        (tmp_path / "m" / "a.yaml").replace(tmp_path / "m" / "a.yaml~")
        (tmp_path / "m" / "a.yaml").write_text(pod("a", "new"))
        await until(lambda: any(pod.spec.containers[0].image == "new" for pod in published.pod_lists[-1]))
        assert all(len(pods) == 3 for pods in published.pod_lists[3:])
        (tmp_path / "m" / "b.yaml").unlink()
        (tmp_path / "m" / "b.yaml").write_text(pod("b"))
        await until(lambda: [len(pods) for pods in published.pod_lists[-2:]] == [2, 3])
        task.cancel()
        await asyncio.gather(task, return_exceptions=True)

    asyncio.run(watched())


def test_a_url_is_polled() -> None:
    answers: list[tuple[int, bytes]] = []
    heads: list[str] = []

    async def serve(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        heads.append((await reader.readuntil(b"\r\n\r\n")).decode())
        status, body = answers.pop(0)
        writer.write(f"HTTP/1.1 {status} X\r\nContent-Length: {len(body)}\r\n\r\n".encode() + body)
        writer.close()

    async def poll_url() -> Published:
        published = Published()
        server = await asyncio.start_server(serve, "127.0.0.1", 0)
        async with server:
            url = f"http://127.0.0.1:{server.sockets[0].getsockname()[1]}/pods?a=b"
            manifest_url = ManifestURL(url, {"X-Key": "k"}, published.listener())
            given = [(200, pod().encode()), (200, pod().encode()), (404, b"no"), (404, b"no"), (200, b"{")]
            answers.extend([*given, (200, pod("b").encode()), (200, b"")])
            while answers:
                await manifest_url.poll()
            published.warnings = [each.replace(url, "URL") for each in published.warnings]
        return published

    published = asyncio.run(poll_url())
    assert [[pod.metadata.name for pod in pods] for pods in published.pod_lists] == [
        ["web-node-a"],
        ["b-node-a"],
        [],
    ]
    assert published.pod_lists[0][0].metadata.annotations["kubernetes.io/config.source"] == "http"
    assert published.warnings[0] == "ManifestsNotRead: URL: 404 Not Found"
    assert published.warnings[1].startswith("ManifestsNotRead: URL")
    assert published.warnings[2:] == [
        "ManifestsRead: URL: read again",
        "ManifestsNotRead: zero-length data received from URL",
    ]
    assert "GET /pods?a=b HTTP/1.1" in heads[0]
    assert "X-Key: k" in heads[0]


def test_a_url_that_is_none() -> None:
    published = Published()
    asyncio.run(ManifestURL("file:///etc", {}, published.listener()).poll())
    assert published.warnings == [
        "ManifestsNotRead: file:///etc: a URL begins with http:// or https:// and names a host"
    ]


def test_a_runtime_class_beside_manifests_adds_its_overhead(bench: Bench) -> None:
    bench.write("a-pod.yaml", pod().replace("spec: {", "spec: {runtimeClassName: small, "))
    bench.write(
        "classes.yaml",
        "apiVersion: node.k8s.io/v1\nkind: RuntimeClass\nmetadata: {name: small}\nhandler: kata\n"
        "overhead: {podFixed: {memory: 64Mi}}\n",
    )
    published = bench.look()
    ((found,),) = published.pod_lists
    assert {name: str(amount) for name, amount in (found.spec.overhead or {}).items()} == {"memory": "64Mi"}
    assert {name: one.handler for name, one in published.object_cache.runtime_classes().items()} == {
        "small": "kata"
    }
    (bench.directory / "classes.yaml").unlink()
    bench.look()
    time.sleep(0.3)
    assert bench.look().object_cache.runtime_classes() == {}
