"""The events of a pod as the API server has them."""

from collections.abc import Iterator

import msgspec

from nodewright.cluster.client.cluster_api import ApiError
from nodewright.cluster.objects.object_names import ResourceKind
from nodewright.cluster.objects.reader import ClusterReader, Selection, listed_objects
from nodewright.model.errors import JSON_ERRORS
from nodewright.model.kubernetes.objects import Pod

_EVENTS = ResourceKind("events", "Event", "v1", ("ev",))
_MAX_EVENTS = 5


class _Source(msgspec.Struct, frozen=True):
    component: str = ""


class _Series(msgspec.Struct, frozen=True, rename="camel"):
    count: int = 0
    last_observed_time: str | None = None


class _Event(msgspec.Struct, frozen=True, rename="camel"):
    reason: str = ""
    message: str = ""
    count: int | None = None
    last_timestamp: str | None = None
    event_time: str | None = None
    series: _Series | None = None
    source: _Source = _Source()
    reporting_component: str = ""

    @property
    def time(self) -> str:
        series_time = self.series.last_observed_time if self.series else None
        return series_time or self.last_timestamp or self.event_time or ""

    def sentence(self) -> str:
        count = self.series.count if self.series else self.count or 1
        times = f", {count} times" if count > 1 else ""
        component = self.reporting_component or self.source.component or "unknown"
        return f"event of {component}, {self.time or 'without a time'}{times}: {self.reason}: {self.message}"


async def pod_event_sentences(reader: ClusterReader, pod: Pod) -> tuple[str, ...]:
    """The last events of the pod, one sentence each; why there are none if they cannot be read.

    Errors: ApiError if the API server does not answer.
    """
    selector = f"involvedObject.kind=Pod,involvedObject.name={pod.metadata.name}"
    selection = Selection(namespace=pod.metadata.namespace or "default")
    try:
        items = await listed_objects(reader, _EVENTS, selection, fields=selector)
    except ApiError as error:
        if not error.status:
            raise
        return (f"events could not be read: {error}",)
    events = sorted(_decoded(items), key=lambda event: event.time)
    return tuple(event.sentence() for event in events[-_MAX_EVENTS:])


def _decoded(items: tuple[msgspec.Raw, ...]) -> Iterator[_Event]:
    for item in items:
        try:
            yield msgspec.json.decode(item, type=_Event)
        except JSON_ERRORS:
            continue  # An event that no component of Kubernetes writes explains nothing.
