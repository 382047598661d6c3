"""Whether hollow nodes may be made in a cluster: rights, names that are in use, and other nodes; before anything is made."""

from collections.abc import Iterable, Iterator
from typing import Any, NamedTuple

from nodewright.agent.hollow.behaviour import PodStage
from nodewright.agent.hollow.hollow_options import HOLLOW_LABEL, HollowOptions
from nodewright.agent.hollow.kwok_stages import pod_stage
from nodewright.agent.member.node_registration import NODES
from nodewright.cluster.client.cluster_api import ApiError, ClusterAPI
from nodewright.cluster.client.reflector import Reflector
from nodewright.cluster.objects.node_owned_objects import TOPOLOGIES
from nodewright.cluster.tasks.timing import HostClock
from nodewright.model.errors import Fault, InputError

_REVIEWS = "/apis/authorization.k8s.io/v1/selfsubjectaccessreviews"
_STAGES = "/apis/kwok.x-k8s.io/v1alpha1/stages"
_KWOK_ANNOTATION = "kwok.x-k8s.io/node"
_MAX_NAMED = 5


class NeededRight(NamedTuple):
    """What the process does with objects of a kind."""

    resource: str
    """With the subresource: `pods/status`."""
    verbs: tuple[str, ...]
    group: str = ""
    namespace: str = ""


_TOPOLOGY_RIGHT = NeededRight("noderesourcetopologies", ("get", "create", "update"), "topology.node.k8s.io")


_CLAIM_RIGHTS = (
    NeededRight("resourceslices", ("get", "create", "update"), "resource.k8s.io"),
    NeededRight("resourceclaims", ("get",), "resource.k8s.io"),
)


def needed_rights(options: HollowOptions) -> tuple[NeededRight, ...]:
    """All that the process does in the API server."""
    removal = ("delete",) if options.remove_on_exit else ()
    reviews = (
        NeededRight("tokenreviews", ("create",), "authentication.k8s.io"),
        NeededRight("subjectaccessreviews", ("create",), "authorization.k8s.io"),
    )
    return (
        NeededRight("nodes", ("get", "list", "watch", "create", *removal)),
        NeededRight("nodes/status", ("patch",)),
        NeededRight("pods", ("list", "watch", "delete")),
        NeededRight("pods/status", ("patch",)),
        NeededRight("events", ("create", "patch")),
        NeededRight("leases", ("get", "create", "update"), "coordination.k8s.io", "kube-node-lease"),
        *(reviews if options.kubelet_api else ()),
        *((_TOPOLOGY_RIGHT,) if options.publish else ()),
        *(_CLAIM_RIGHTS if options.resource_slices else ()),
    )


async def check_cluster(api: ClusterAPI, names: Iterable[str], options: HollowOptions, source: str) -> None:
    """Checks that the nodes may be made in this cluster; ``source`` names the kubeconfig.

    Errors: InputError with all that forbids it; ApiError.
    """
    faults = [Fault(source=source, rule=rule) async for rule in _missing_rights(api, options)]
    if not any("list nodes" in fault.rule for fault in faults):
        faults += _node_faults(await _listed(api, NODES), frozenset(names), options)
    if options.publish and not await _has_topologies(api):
        rule = "the cluster has no NodeResourceTopologies (topology.node.k8s.io/v1alpha2): install their definition"
        faults.append(Fault(source="--publish", value=options.publish[0], rule=rule))
    if faults:
        raise InputError(faults)


async def _has_topologies(api: ClusterAPI) -> bool:
    """Whether the API server has the kind; where objects may not be listed it is assumed."""
    try:
        await api.read(TOPOLOGIES, {"limit": "1"})
    except ApiError as error:
        return error.status != 404
    return True


async def _missing_rights(api: ClusterAPI, options: HollowOptions) -> Any:
    for right in needed_rights(options):
        resource, _, subresource = right.resource.partition("/")
        for verb in right.verbs:
            attributes = {
                "verb": verb,
                "group": right.group,
                "resource": resource,
                "subresource": subresource,
                "namespace": right.namespace,
            }
            review = await api.create(
                _REVIEWS,
                {
                    "apiVersion": "authorization.k8s.io/v1",
                    "kind": "SelfSubjectAccessReview",
                    "spec": {"resourceAttributes": attributes},
                },
            )
            status = review.get("status")
            status = status if isinstance(status, dict) else {}
            if status.get("allowed") is not True:
                why = f": {status['reason']}" if status.get("reason") else ""
                yield f"its user may not {verb} {right.resource}{why}"


async def read_stages(api: ClusterAPI) -> tuple[tuple[PodStage, ...], list[str]]:
    """The Stages of kwok in the cluster that say what containers do, and why others are not read."""
    stages, unread = list[PodStage](), list[str]()
    try:
        documents = await _listed(api, _STAGES)
    except ApiError as error:
        # Clusters without kwok do not have the kind.
        return (), [] if error.status == 404 else [f"Stages of kwok are not read: {error}"]
    for document in sorted(documents, key=lambda each: str(each["metadata"].get("name"))):
        try:
            stage = pod_stage(document)
        except InputError as error:
            unread.append(f"Stage {document['metadata'].get('name')} of kwok is not read: {error}")
        else:
            stages += [stage] if stage is not None else []
    return tuple(stages), unread


async def _listed(api: ClusterAPI, path: str) -> list[dict[str, Any]]:
    reflector = Reflector(api, path, "", HostClock())
    await reflector.read_list()
    return list(reflector.objects.values())


def _node_faults(
    nodes: list[dict[str, Any]], names: frozenset[str], options: HollowOptions
) -> Iterator[Fault]:
    foreign = {
        node["metadata"]["name"]: node
        for node in nodes
        if HOLLOW_LABEL not in (node["metadata"].get("labels") or {})
    }
    if not options.adopt:
        rule = (
            "this Node exists and is not hollow: choose other names with --name, or take it over with --adopt"
        )
        yield from (Fault(source=f"node/{name}", rule=rule) for name in sorted(foreign.keys() & names))
    real = sorted(
        name
        for name, node in foreign.items()
        if name not in names and _KWOK_ANNOTATION not in (node["metadata"].get("annotations") or {})
    )
    if real and not options.beside_real_nodes:
        shown = ", ".join(real[:_MAX_NAMED]) + (
            f" and {len(real) - _MAX_NAMED} more" if len(real) > _MAX_NAMED else ""
        )
        rule = f"the cluster has real nodes ({shown}), whose pods would be scheduled to hollow ones as well"
        yield Fault(source="--beside-real-nodes", rule=f"{rule}: give this option, best with a taint")
