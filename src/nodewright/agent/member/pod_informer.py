"""The pods that the API server has bound to the node, as observations for the agent's loop."""

import asyncio
from collections.abc import Callable, Mapping
from typing import Any

from msgspec.structs import replace

from nodewright.agent.decide.pod_resize import without_api_fields
from nodewright.agent.member.pod_status_writer import without_runtime_name
from nodewright.agent.state.agent_state import PodSource
from nodewright.agent.state.observations import Observation, SourcePodsListed
from nodewright.cluster.client.reflector import ObjectView
from nodewright.documents.formats.decode import decode, type_faults
from nodewright.documents.formats.pod_files import is_safe_uid
from nodewright.model.errors import InputError
from nodewright.model.kubernetes.objects import Pod
from nodewright.model.kubernetes.recorded_events import RecordEvent
from nodewright.model.values.path_component import PathComponent, PathComponentError

MIRROR_ANNOTATION = "kubernetes.io/config.mirror"


class PodInformer:
    """Turns the reflector's pods into lists of a source; mirror pods are kept apart.

    Nothing is observed before the reflector has a whole list and `start` was called: the Node object was seen.

    Follows: v1.36, pkg/kubelet/config/apiserver.go.
    """

    def __init__(self, reflector: ObjectView, observe: Callable[[Observation], None]) -> None:
        self._reflector, self._observe = reflector, observe
        self.record_event: Callable[[RecordEvent], None] = lambda _event: None
        self.on_object: Callable[[str], None] = lambda _uid: None
        """Called with the uid of each object that has changed; empty: any of them."""
        self._pods: dict[str, Pod] = {}
        self._relevant: dict[str, tuple[Pod, bool]] = {}
        self._has_started = self.has_published = self._is_scheduled = False
        reflector.on_change = self.apply_change

    def start(self) -> None:
        """Publishes what is listed, and all changes from now on."""
        self._has_started = True
        self._publish()
        self.on_object("")

    def apply_change(self, uid: str) -> None:
        """Decodes a changed object; publishes the list if the change matters to the loop."""
        uids = [uid] if uid else sorted({*self._pods, *self._reflector.objects})
        matters = [self._decode(changed) for changed in uids]
        if any(matters) or not self.has_published:
            self._schedule()
        self.on_object(uid)

    def _decode(self, uid: str) -> bool:
        """Decodes one object; whether the loop must see the change."""
        document = self._reflector.objects.get(uid)
        if document is None:
            self._relevant.pop(uid, None)
            return self._pods.pop(uid, None) is not None
        if is_mirror(document):
            return False
        try:
            pod = decode(document, Pod)
            _check_names(pod)
            _check_types(document)
        except Exception as error:  # noqa: BLE001 - one pod must not end the following of the others
            # A pod that is known keeps running as it was.
            metadata = document.get("metadata") or {}
            message = f"pod {metadata.get('namespace')}/{metadata.get('name')}: {error}"
            self.record_event(RecordEvent.warning("PodNotDecoded", message))
            return False
        known = self._pods.get(uid)
        # A spec that has not changed is kept once, by the loop and here.
        spec = known.spec if known is not None and known.spec == pod.spec else pod.spec
        pod = replace(pod, spec=spec, status=without_runtime_name(pod.status))
        self._pods[uid] = pod
        relevant, before = (without_api_fields(pod), pod.is_terminal), self._relevant.get(uid)
        self._relevant[uid] = relevant
        return relevant != before

    def _schedule(self) -> None:
        """Publishes after the events that have already arrived."""
        if not self._is_scheduled:
            self._is_scheduled = True
            asyncio.get_running_loop().call_soon(self._publish)

    def _publish(self) -> None:
        self._is_scheduled = False
        if self._has_started and self._reflector.has_listed:
            self.has_published = True
            self._observe(SourcePodsListed(PodSource.CLUSTER, tuple(self._pods.values())))


def _check_names(pod: Pod) -> None:
    """Checks that what becomes part of paths is a single name: an API server may be compromised, or no API server.

    Errors: PathComponentError.
    """
    meta, spec = pod.metadata, pod.spec
    if not is_safe_uid(meta.uid):
        raise PathComponentError(
            f'the uid "{meta.uid[:_SHOWN_CHARACTERS]}" cannot be the name of a directory'
        )
    containers = (*spec.init_containers, *spec.containers, *spec.ephemeral_containers)
    names = (meta.namespace, meta.name, *(container.name for container in containers))
    for name in (*names, *(str(volume.get("name") or "") for volume in spec.volumes)):
        PathComponent(name)


def _check_types(document: Mapping[str, Any]) -> None:
    """Checks the parts of a pod that are read as they are written, such as its volumes.

    Follows: v1.36, apimachinery/pkg/watch/streamwatcher.go, receive.
    Departs: the watch goes on without the pod; that of a kubelet ends at an object that cannot be decoded.
    Errors:  InputError with the first faults.
    """
    faults = type_faults({"spec": document.get("spec")}, "Pod")
    if faults:
        raise InputError(faults[:_SHOWN_FAULTS])


_SHOWN_CHARACTERS, _SHOWN_FAULTS = 40, 3


def is_mirror(document: Mapping[str, Any]) -> bool:
    """Whether a pod object only shows a static pod."""
    return MIRROR_ANNOTATION in ((document.get("metadata") or {}).get("annotations") or {})
