import asyncio

from nodewright.agent.observe.manifest_sources import SourceListener
from nodewright.agent.pods.config_object_cache import ConfigObjectCache
from nodewright.agent.state.agent_state import PodSource
from nodewright.agent.state.observations import SourcePodsListed
from nodewright.documents.formats.pod_files import ManifestContent
from nodewright.model.kubernetes.cluster_objects import RuntimeClass
from nodewright.model.kubernetes.objects import ObjectMeta, Pod
from nodewright.testing.objects import a_pod

PLACE = (PodSource.FILE, "/manifests")


class Bench:
    """A listener, and the lists of pods that it published."""

    def __init__(self) -> None:
        self.lists: list[tuple[Pod, ...]] = []
        self.cache = ConfigObjectCache()
        self.listener = SourceListener("node", self._observe, lambda _: None, self.cache)

    def _observe(self, observation: object) -> None:
        assert isinstance(observation, SourcePodsListed)
        self.lists.append(observation.pods)

    def publish(self, *contents: ManifestContent) -> tuple[Pod, ...]:
        return asyncio.run(self.listener.set_pods(*PLACE, list(contents)))


def content(name: str) -> ManifestContent:
    return ManifestContent(pods=[a_pod(name)])


def test_pods_that_are_still_written_so_are_the_same_objects() -> None:
    bench, web = Bench(), content("web")
    (first,) = bench.publish(web)
    assert bench.publish(content("db"), web)[1] is first
    assert bench.publish(content("web")) == (first,)


def test_pods_are_completed_again_after_a_change_of_the_runtime_classes() -> None:
    bench, web = Bench(), content("web")
    (first,) = bench.publish(web)
    vm = RuntimeClass(metadata=ObjectMeta(name="vm"), handler="vm")
    bench.cache.put_runtime_classes(PodSource.FILE, "/elsewhere", [vm])
    (second,) = bench.publish(web)
    assert second is not first
    assert second == first


def test_pods_that_are_gone_are_not_kept() -> None:
    bench = Bench()
    bench.publish(content("web"), content("db"))
    bench.publish(content("new"))
    assert len(bench.listener.completed[PLACE].pods) == 1
