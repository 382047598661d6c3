"""What the sources of manifests report to: their pods, objects and warnings."""

import asyncio
from collections.abc import Callable, Iterable
from typing import NamedTuple

import msgspec
from msgspec.structs import replace

from nodewright.agent.pods.config_object_cache import ConfigObjectCache
from nodewright.agent.state.agent_state import PodSource
from nodewright.agent.state.observations import Observation, SourcePodsListed
from nodewright.documents.formats.pod_files import ManifestContent
from nodewright.engine.admission.admission_plugins import with_runtime_class
from nodewright.engine.core.requests.resource_defaults import with_defaults
from nodewright.model.kubernetes.cluster_objects import RuntimeClass
from nodewright.model.kubernetes.objects import Pod
from nodewright.model.kubernetes.recorded_events import RecordEvent

_PODS_BETWEEN_YIELDS = 50


class CompletedPods(NamedTuple):
    """Pods of a source with defaults, by the identity of the pods as they are written."""

    runtimes: tuple[RuntimeClass, ...]
    """The runtime classes that they were completed with."""
    pods: dict[int, tuple[Pod, Pod]]
    """The pod as written, which has this identity as long as it is kept here, and the completed one."""

    def completed(self, written: Pod) -> Pod:
        """The pod with defaults."""
        if id(written) not in self.pods:
            pod = with_defaults(replace(written, spec=with_runtime_class(written.spec, self.runtimes)[0]))
            self.pods[id(written)] = (written, pod)
        return self.pods[id(written)][1]

    def kept(self, written: Iterable[Pod]) -> "CompletedPods":
        """Only these of the pods."""
        return CompletedPods(self.runtimes, {id(pod): self.pods[id(pod)] for pod in written})


class SourceListener(msgspec.Struct, frozen=True):
    """What sources report to."""

    node_name: str
    observe: Callable[[Observation], None]
    record_event: Callable[[RecordEvent], None]
    object_cache: ConfigObjectCache
    completed: dict[tuple[PodSource, str], CompletedPods] = {}
    """What each source published last: of thousands of pods, those that are still written so are the same objects."""

    def record_warning(self, reason: str, message: str) -> None:
        """Records a warning about the node."""
        self.record_event(RecordEvent(uid="", is_warning=True, reason=reason, message=message))

    async def set_pods(
        self, source: PodSource, location: str, contents: list[ManifestContent]
    ) -> tuple[Pod, ...]:
        """Publishes all that a source has now."""
        by_name: dict[str, Pod] = {}
        self.object_cache.put_runtime_classes(
            source,
            location,
            [runtime_class for content in contents for runtime_class in content.runtime_classes],
        )
        completed = self._completed_before(source, location)
        for number, content in enumerate(contents):
            if number % _PODS_BETWEEN_YIELDS == 0:
                await asyncio.sleep(0)
            for written in content.pods:
                pod = completed.completed(written)
                if pod.full_name in by_name:
                    self.record_warning(
                        "ManifestRepeated",
                        f"{location}: {pod.full_name} is defined more than once; the last definition is used",
                    )
                by_name[pod.full_name] = pod
        self.completed[source, location] = completed.kept(pod for content in contents for pod in content.pods)
        by_uid: dict[str, Pod] = {}
        for pod in by_name.values():
            if pod.uid in by_uid:
                first = by_uid[pod.uid].full_name
                self.record_warning(
                    "ManifestRepeated",
                    f"{location}: {pod.full_name} has the uid of {first} ({pod.uid}); the last definition is used",
                )
            by_uid[pod.uid] = pod
        maps = [config_map for content in contents for config_map in content.config_maps]
        self.object_cache.put(
            source, location, maps, [secret for content in contents for secret in content.secrets]
        )
        pods = tuple(by_uid.values())
        self.observe(SourcePodsListed(source, pods))
        return pods

    def _completed_before(self, source: PodSource, location: str) -> CompletedPods:
        """What the source published last, unless the runtime classes have changed since."""
        runtimes = tuple(self.object_cache.runtime_classes().values())
        completed = self.completed.get((source, location))
        return completed if completed and completed.runtimes == runtimes else CompletedPods(runtimes, {})
