"""Reads the static pods of a kubelet's `staticPodPath`, and finds the uids that the kubelet uses for them."""

from collections.abc import Mapping, Sequence
from pathlib import Path

import msgspec
from msgspec.structs import replace

from nodewright.documents.profiles.capture.node_pods import STATIC_POD_UID
from nodewright.documents.profiles.state_files.pod_resource_state import PodResourceInfo
from nodewright.engine.core.requests.qos_and_priority import CONFIG_SOURCE
from nodewright.engine.core.requests.resource_defaults import with_defaults
from nodewright.model.errors import Fault, InputError
from nodewright.model.kubernetes.objects import Pod, ResourceRequirements, Toleration

_POD = ("v1", "Pod")
_NO_EXECUTE = Toleration(operator="Exists", effect="NoExecute")


class StaticPods(msgspec.Struct, frozen=True, kw_only=True):
    """The pods of the manifests, and the ignored files."""

    pods: tuple[Pod, ...] = ()
    """The pods as the kubelet defaults them, except their uids."""
    ignored_files: tuple[str, ...] = ()


def read_static_pods(path: Path, node: str) -> StaticPods:
    """The static pods in the directory, or in the file; files whose name begins with a dot are ignored.

    Follows: v1.36, pkg/kubelet/config/file.go, listConfig, extractFromDir; config/common.go, applyDefaults.
    Errors:  InputError if the path cannot be read.
    """
    from nodewright.documents.formats.manifests import load_workloads  # noqa: PLC0415 - 3 MiB that an exporter does not need

    try:
        files = [path] if path.is_file() else sorted(entry for entry in path.iterdir() if entry.is_file())
    except OSError as error:
        raise InputError([Fault(rule=f"cannot be read: {error.strerror}", source=str(path))]) from None
    pods, ignored_files = [], []
    for file in files:
        if file.name.startswith("."):
            continue
        try:
            workloads = load_workloads([str(file)]).workloads
        except InputError:
            # The kubelet logs the errors of a manifest and continues with the next one.
            workloads = ()
        if len(workloads) == 1 and (workloads[0].api_version, workloads[0].kind) == _POD:
            pods.append(_static_pod(workloads[0].pod, node))
        else:
            ignored_files.append(file.name)
    return StaticPods(pods=tuple(pods), ignored_files=tuple(ignored_files))


def _static_pod(pod: Pod, node: str) -> Pod:
    meta = replace(
        pod.metadata,
        name=f"{pod.metadata.name}-{node.lower()}",
        annotations={**pod.metadata.annotations, CONFIG_SOURCE: "file"},
    )
    spec = replace(pod.spec, node_name=node, tolerations=(*pod.spec.tolerations, _NO_EXECUTE))
    return replace(pod, metadata=meta, spec=spec)


def matched_static_pods(
    static: Sequence[Pod], allocated: Mapping[str, PodResourceInfo], known: Sequence[Pod]
) -> tuple[Pod, ...]:
    """The static pods with the kubelet's uids, as far as they are unambiguous.

    A uid in the manifest is the kubelet's. Otherwise it is a hash of the whole pod in Go's notation, which is not
    computed here. Instead a pod is recognised by the names and resources of its containers, if they match exactly one
    uid and no other pod does.

    Follows: v1.36, pkg/kubelet/config/common.go, applyDefaults: 128 bits as 32 digits.
    Departs: pods with the same containers and resources are not distinguished.
    """
    known_uids = {pod.uid for pod in known}
    known_uids |= {pod.uid for pod in static}
    unknown_uids = [uid for uid in allocated if STATIC_POD_UID.fullmatch(uid) and uid not in known_uids]
    matches = {
        index: [pod.uid]
        if pod.uid in allocated
        else [uid for uid in unknown_uids if _containers(pod) == allocated[uid].containers]
        for index, pod in enumerate(static)
    }
    matched_uids = [uid for uids in matches.values() for uid in uids]
    return tuple(
        replace(pod, metadata=replace(pod.metadata, uid=matches[index][0]))
        for index, pod in enumerate(static)
        if len(matches[index]) == 1 and matched_uids.count(matches[index][0]) == 1
    )


def _containers(pod: Pod) -> dict[str, ResourceRequirements]:
    spec = with_defaults(pod).spec
    return {
        container.name: replace(container.resources, claims=())
        for container in (*spec.init_containers, *spec.containers)
    }
