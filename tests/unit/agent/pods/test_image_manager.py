"""Images are fetched when they have to be, not too often, and removed when there is no room."""

import asyncio
import json
from collections.abc import Coroutine
from pathlib import Path

import pytest
from tests.support.fake_clock import FakeClock, settle

from nodewright.agent.host.ports import Credentials, ImageFsStats, StoredImage
from nodewright.agent.pods.config_object_cache import ConfigObjectCache
from nodewright.agent.pods.container_lifecycle import ContainerConfigError
from nodewright.agent.pods.image_manager import IMAGE_GC_PERIOD_S, ImageGCResult, ImageManager, PullSecrets
from nodewright.agent.rules.image_policy import ImageGCPolicy
from nodewright.agent.state.agent_state import PodSource
from nodewright.model.errors import HostError
from nodewright.model.kubernetes.cluster_objects import Secret
from nodewright.model.kubernetes.kubelet_configuration import KubeletConfiguration
from nodewright.model.kubernetes.objects import Container, ObjectMeta, Pod
from nodewright.model.kubernetes.recorded_events import RecordEvent
from nodewright.testing.objects import a_pod

POD = a_pod()
NOBODYS_ROOM = ImageFsStats(capacity_bytes=100, available_bytes=100)


class Store:
    """Images in a dictionary."""

    def __init__(self, *there: str) -> None:
        self.there = dict.fromkeys(there, 10)
        self.used = frozenset[str]()
        self.broken = ""
        self.stuck = frozenset[str]()
        self.welcome = ""
        self.free = NOBODYS_ROOM
        self.pulled: list[str] = []
        self.max_parallel_pulls = self.most_at_once = 0
        self.pull_s, self.clock = 0.0, FakeClock()

    async def image_id(self, image: str) -> str | None:
        self._perhaps_broken("ImageStatus", image)
        return f"id-{image}" if image in self.there else None

    async def pull(self, image: str, credentials: Credentials | None = None) -> str:
        self.pulled.append(image if credentials is None else f"{image} as {credentials.username}")
        if self.welcome and (credentials is None or credentials.username != self.welcome):
            raise HostError("PullImage", image, "unauthorized")
        self.max_parallel_pulls += 1
        self.most_at_once = max(self.most_at_once, self.max_parallel_pulls)
        await (self.clock.sleep(self.pull_s) if self.pull_s else asyncio.sleep(0))
        self.max_parallel_pulls -= 1
        self._perhaps_broken("PullImage", image)
        self.there[image] = 10
        return f"id-{image}"

    async def image_size(self, image: str) -> int:
        self._perhaps_broken("ImageStatus", image)
        return self.there.get(image, 0)

    async def images(self) -> tuple[StoredImage, ...]:
        self._perhaps_broken("ListImages", "")
        return tuple(StoredImage(id=name, size_bytes=size) for name, size in self.there.items())

    async def in_use(self) -> frozenset[str]:
        return self.used

    async def image_fs_path(self) -> str:
        return "/"

    async def image_fs_stats(self) -> ImageFsStats:
        return self.free

    async def remove(self, image_id: str) -> None:
        if image_id in self.stuck:
            raise HostError("RemoveImage", image_id, "read-only file system")
        del self.there[image_id]

    def _perhaps_broken(self, operation: str, place: str) -> None:
        if self.broken:
            raise HostError(operation, place, self.broken)


class Bench:
    def __init__(self, *there: str, max_parallel_pulls: int = 1) -> None:
        self.store, self.clock = Store(*there), FakeClock()
        self.store.clock = self.clock
        self.told: list[RecordEvent] = []
        self.images = ImageManager(
            self.store,
            self.clock,
            self.told.append,
            policy=ImageGCPolicy(min_age_ns=0),
            max_parallel_pulls=max_parallel_pulls,
        )

    async def ensure(self, image: str, policy: str = "") -> str:
        return await self.images.ensure_image_exists(
            POD, Container(name="app", image=image, image_pull_policy=policy)
        )

    async def refused(self, image: str, policy: str = "") -> tuple[str, str]:
        with pytest.raises(ContainerConfigError) as refused:
            await self.ensure(image, policy)
        return refused.value.reason, str(refused.value)

    def events(self) -> list[str]:
        return [record_event.reason for record_event in self.told]


def run(test: Coroutine[None, None, None]) -> None:
    asyncio.run(test)


def test_what_is_there_is_not_fetched_unless_it_has_to_be() -> None:
    async def test() -> None:
        bench = Bench("web:1", "web:latest")
        assert await bench.ensure("web:1") == "id-web:1"
        assert await bench.ensure("web", "Never") == "id-web:latest"
        assert bench.store.pulled == []
        assert await bench.ensure("web") == "id-web:latest"
        assert await bench.ensure("other:1") == "id-other:1"
        assert bench.store.pulled == ["web:latest", "other:1"]
        assert bench.events() == ["Pulled", "Pulled", "Pulling", "Pulled", "Pulling", "Pulled"]

    run(test())


def test_a_pull_is_reported_with_its_time_and_size() -> None:
    async def test() -> None:
        bench = Bench(max_parallel_pulls=1)
        pulls: list[tuple[str, float, float, int]] = []
        bench.images.on_pull = lambda *pull: pulls.append(pull)
        bench.store.pull_s = 1.5
        started_s = bench.clock.now_ns() / 10**9
        tasks = [asyncio.create_task(bench.ensure(image)) for image in ("a:1", "b:1")]
        for _ in range(2):
            await settle()
            await bench.clock.advance(1.5)
        await asyncio.wait_for(asyncio.gather(*tasks), 60)
        assert [one.message for one in bench.told if one.reason == "Pulled"] == [
            'Successfully pulled image "a:1" in 1.5s (1.5s including waiting). Image size: 10 bytes.',
            'Successfully pulled image "b:1" in 1.5s (3s including waiting). Image size: 10 bytes.',
        ]
        assert pulls == [(POD.uid, started_s, 1.5, 10), (POD.uid, started_s, 3.0, 10)]

    run(test())


def test_why_there_is_no_image() -> None:
    async def test() -> None:
        bench = Bench()
        assert (await bench.refused("web:1", "Never"))[0] == "ErrImageNeverPull"
        assert (await bench.refused("Web:1"))[0] == "InvalidImageName"
        bench.store.broken = "no answer"
        assert (await bench.refused("web:1", "Never"))[0] == "ImageInspectError"
        assert bench.events() == ["ErrImageNeverPull", "InspectFailed", "InspectFailed"]

    run(test())


def test_what_cannot_be_fetched_is_tried_again_later_and_later() -> None:
    async def test() -> None:
        bench = Bench()
        bench.store.broken = "not found"
        tries = []
        for second in range(75):
            reason, message = await bench.refused("web:1", "Always")
            if reason == "ErrImagePull":
                tries.append(second)
                assert message == "not found"
            else:
                back_off = 'Back-off pulling image "web:1": ErrImagePull: not found'
                assert (reason, message) == ("ImagePullBackOff", back_off)
            await bench.clock.advance(1)
        assert tries == [0, 10, 30, 70]
        await bench.clock.advance(601)
        assert (await bench.refused("web:1", "Always"))[0] == "ErrImagePull"
        await bench.clock.advance(10)
        bench.store.broken = ""
        assert await bench.ensure("web:1", "Always") == "id-web:1"

    run(test())


@pytest.mark.parametrize(("max_parallel_pulls", "most"), [(1, 1), (2, 2), (0, 4)])
def test_so_many_are_fetched_at_once(max_parallel_pulls: int, most: int) -> None:
    async def test() -> None:
        bench = Bench(max_parallel_pulls=max_parallel_pulls)
        await asyncio.gather(*(bench.ensure(f"web:{number}") for number in range(4)))
        assert bench.store.most_at_once == most

    run(test())


def test_settings_are_a_kubelets() -> None:
    clock, store = FakeClock(), Store()
    for config, most in (
        (KubeletConfiguration(), 1),
        (KubeletConfiguration(max_parallel_image_pulls=3), 3),
        (KubeletConfiguration(serialize_image_pulls=False), 4),
    ):

        async def test(config: KubeletConfiguration = config) -> None:
            images = ImageManager.from_config(store, clock, lambda _: None, config)
            pods = (Container(name="app", image=f"web:{number}") for number in range(4))
            await asyncio.gather(*(images.ensure_image_exists(POD, pod) for pod in pods))

        store.there, store.most_at_once = {}, 0
        run(test())
        assert store.most_at_once == most


def test_images_go_until_there_is_room() -> None:
    async def test() -> None:
        bench = Bench("a", "b", "c", "d")
        bench.store.used, bench.store.stuck = frozenset("b"), frozenset("a")
        assert await bench.images.collect_garbage() == ImageGCResult()
        bench.store.free = ImageFsStats(capacity_bytes=100, available_bytes=13)
        done = await bench.images.collect_garbage()
        assert (done.removed, done.freed_bytes, done.bytes_to_free) == (("c",), 10, 7)
        assert (done.is_target_reached, done.used_percent) == (True, 87)
        assert done.failures == ("RemoveImage a: read-only file system",)
        assert (await bench.images.delete_unused_images()).removed == ("d",)
        assert set(bench.store.there) == {"a", "b"}

    run(test())


def test_insufficient_disk_space_is_reported_periodically() -> None:
    async def test() -> None:
        bench = Bench("a")
        bench.store.free = ImageFsStats(capacity_bytes=100, available_bytes=0)
        task = asyncio.create_task(bench.images.run())
        await settle()
        await bench.clock.advance(IMAGE_GC_PERIOD_S)
        assert bench.events() == ["FreeDiskSpaceFailed"]
        assert "(100% used)" in bench.told[0].message
        bench.store.broken = "no answer"
        await bench.clock.advance(IMAGE_GC_PERIOD_S)
        assert bench.events() == ["FreeDiskSpaceFailed", "ImageGCFailed"]
        task.cancel()
        await asyncio.gather(task, return_exceptions=True)

    run(test())


def test_images_that_have_just_come_stay_even_if_there_is_no_room() -> None:
    async def test() -> None:
        clock, store = FakeClock(), Store("old")
        images = ImageManager(store, clock, lambda _: None)
        task = asyncio.create_task(images.run())
        await settle()
        await clock.advance(121)
        store.there["new"] = 10
        assert (await images.delete_unused_images()).removed == ("old",)
        assert set(store.there) == {"new"}
        task.cancel()
        await asyncio.gather(task, return_exceptions=True)

    run(test())


def test_all_credentials_for_an_image_are_tried_in_order() -> None:
    people = tuple(Credentials(name, "x") for name in ("ann", "bob", "eve"))

    async def test() -> None:
        store, asked = Store(), list[tuple[str, str]]()

        def credentials_of(pod: Pod, name: str) -> tuple[Credentials, ...]:
            asked.append((pod.metadata.name, name))
            return people

        images = ImageManager(store, FakeClock(), lambda _: None, credentials_of=credentials_of)
        store.welcome = "bob"
        await images.ensure_image_exists(POD, Container(name="app", image="reg.example/web:1"))
        assert store.pulled == ["reg.example/web:1 as ann", "reg.example/web:1 as bob"]
        assert asked == [("web", "reg.example/web")]
        store.welcome = "mallory"
        with pytest.raises(ContainerConfigError, match=r"^unauthorized$"):
            await images.ensure_image_exists(POD, Container(name="app", image="reg.example/other:1"))

    run(test())


def config(name: str) -> bytes:
    return json.dumps({"auths": {"reg.example": {"username": name, "password": "x"}}}).encode()


def test_secrets_come_first_then_the_machines_files(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    home, root = tmp_path / "home", tmp_path / "root"
    (home / ".docker").mkdir(parents=True)
    root.mkdir()
    monkeypatch.setenv("HOME", str(home))
    monkeypatch.chdir(tmp_path)
    events, object_cache = list[RecordEvent](), ConfigObjectCache()
    secret = Secret(
        metadata=ObjectMeta(name="mine", namespace="default"),
        type="kubernetes.io/dockerconfigjson",
        data={".dockerconfigjson": config("pods")},
    )
    object_cache.put(PodSource.FILE, "x", [], [secret])
    credentials_for = PullSecrets(object_cache, root, events.append)
    pod = a_pod(imagePullSecrets=[{"name": "mine"}, {"name": "gone"}, {}])

    def names(image: str = "reg.example/web") -> list[str]:
        return [credential.username for credential in credentials_for(pod, image)]

    assert names() == ["pods"]
    assert events[0].message == (
        "Unable to retrieve some image pull secrets (gone); attempting to pull the image may not succeed."
    )
    (home / ".dockercfg").write_bytes(json.dumps(json.loads(config("old"))["auths"]).encode())
    assert names() == ["pods", "old"]
    (home / ".docker/config.json").write_bytes(config("home"))
    assert names() == ["pods", "home"]
    (root / "config.json").write_bytes(config("root"))
    assert names() == ["pods", "root"]
    assert names("other.example/web") == []
    (root / "config.json").write_bytes(b"{")
    assert names() == ["pods", "home"]
    (text,) = [event.message for event in events if event.reason == "CredentialsNotRead"]
    assert text.startswith(f"{root}/config.json: ")
