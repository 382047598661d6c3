"""Static pods: the manifests of a kubelet's `staticPodPath`, and under which uids it keeps them."""

import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

from msgspec.structs import replace

from nodewright.core.requests import with_defaults
from nodewright.core.requests.criticality import CONFIG_SOURCE
from nodewright.model.objects import Pod, ResourceRequirements, Toleration
from nodewright.world.errors import Fault, InputError
from nodewright.world.manifests import load_workloads
from nodewright.world.state.resources import PodResources

_OF_A_FILE = re.compile(r"[0-9a-f]{32}")
_POD = ("v1", "Pod")
_STAYS = Toleration(operator="Exists", effect="NoExecute")


@dataclass(frozen=True, slots=True, kw_only=True)
class StaticPods:
    """The pods of the manifests, and the files that are none."""

    pods: tuple[Pod, ...] = ()
    """As the kubelet makes them, but for their uids."""
    passed_over: tuple[str, ...] = ()


def read_static_pods(path: Path, node: str) -> StaticPods:
    """The static pods in the directory, or in the one file. Files that begin with a dot do not count.

    Follows: v1.36, pkg/kubelet/config/file.go, listConfig, extractFromDir; config/common.go, applyDefaults.
    Errors:  InputError where it cannot be read.
    """
    try:
        files = [path] if path.is_file() else sorted(one for one in path.iterdir() if one.is_file())
    except OSError as error:
        raise InputError([Fault(rule=f"cannot be read: {error.strerror}", source=str(path))]) from None
    found, passed_over = [], []
    for file in files:
        if file.name.startswith("."):
            continue
        try:
            workloads = load_workloads([str(file)]).workloads
        except InputError:
            # The kubelet logs what is wrong with a manifest and goes on with the next.
            workloads = ()
        if len(workloads) == 1 and (workloads[0].api_version, workloads[0].kind) == _POD:
            found.append(_of_file(workloads[0].pod, node))
        else:
            passed_over.append(file.name)
    return StaticPods(pods=tuple(found), passed_over=tuple(passed_over))


def _of_file(pod: Pod, node: str) -> Pod:
    meta = replace(
        pod.metadata,
        name=f"{pod.metadata.name}-{node.lower()}",
        annotations={**pod.metadata.annotations, CONFIG_SOURCE: "file"},
    )
    spec = replace(pod.spec, node_name=node, tolerations=(*pod.spec.tolerations, _STAYS))
    return replace(pod, metadata=meta, spec=spec)


def recognised(
    static: Sequence[Pod], allocated: Mapping[str, PodResources], known: Sequence[Pod]
) -> tuple[Pod, ...]:
    """The static pods under the uids that the kubelet has for them, as far as there is only one answer.

    The uid is a hash of the whole pod in Go's notation. We do not take it: a pod is recognised by the names
    and resources of its containers, where they fit one uid of that form and no other pod fits it.

    Follows: v1.36, pkg/kubelet/config/common.go, applyDefaults: 128 bits as 32 digits.
    Departs: a pod that looks like another one to the allocation manager is not told from it.
    """
    explained = {pod.uid for pod in known}
    open_uids = [uid for uid in allocated if _OF_A_FILE.fullmatch(uid) and uid not in explained]
    fits = {
        index: [uid for uid in open_uids if _containers(pod) == allocated[uid].containers]
        for index, pod in enumerate(static)
    }
    claims = [uid for uids in fits.values() for uid in uids]
    return tuple(
        replace(pod, metadata=replace(pod.metadata, uid=fits[index][0]))
        for index, pod in enumerate(static)
        if len(fits[index]) == 1 and claims.count(fits[index][0]) == 1
    )


def _containers(pod: Pod) -> dict[str, ResourceRequirements]:
    spec = with_defaults(pod).spec
    return {one.name: replace(one.resources, claims=()) for one in (*spec.init_containers, *spec.containers)}
