"""The nodes of a whole cluster as profiles; what nodes of a kind have in common is put together once."""

from typing import Any

from msgspec.structs import replace

from nodewright.cluster.objects.all_nodes import AllNodes, ListedNode, ListedPod
from nodewright.cluster.objects.node_sources import CONFIGZ, WITHOUT_CONFIGZ
from nodewright.documents.formats.decode import decode_json
from nodewright.documents.formats.documents import InputFile
from nodewright.documents.profiles.capture.captured_node import NodeSources, captured_node
from nodewright.documents.profiles.capture.from_cluster import read_configz, read_node, read_topology
from nodewright.documents.profiles.capture.node_pods import NodePods
from nodewright.engine.admission.admission_plugins import with_canonical_quantities
from nodewright.model.errors import JSON_ERRORS, Fault, InputError
from nodewright.model.kubernetes.node_profile import NodeProfile, ReadSource
from nodewright.model.kubernetes.objects import ObjectMeta, Pod, PodSpec, PodStatus


class ListedNodes:
    """Makes profiles of the nodes; one object for all of them, because it remembers what they have in common."""

    def __init__(self, cluster: AllNodes) -> None:
        self._cluster = cluster
        self._specs: dict[bytes, PodSpec] = {}
        self._statuses: dict[bytes, PodStatus] = {}
        self._machines: dict[tuple[bytes, bytes | None], NodeProfile] = {}
        self._configurations: dict[bytes, dict[str, Any] | InputError] = {}

    def profile(self, node: ListedNode) -> NodeProfile:
        """The node with its pods.

        Errors: InputError if its objects are malformed or contradict each other.
        """
        name = node.name
        failure = self._cluster.failures.get(name)
        configuration = None
        try:
            configuration = self._configuration(name)
        except InputError as error:
            failure = ReadSource(name=CONFIGZ, error=str(error.faults[0]), assumed=WITHOUT_CONFIGZ)
        pods = tuple(map(self._pod, self._in_order(name)))
        sources = () if failure is None else (failure,)
        if name in self._cluster.topologies:
            topology = InputFile(f"node/{name}: NodeResourceTopology", bytes(self._cluster.topologies[name]))
            captured = captured_node(
                NodeSources(
                    node=read_node(self._document(node)),
                    configuration=configuration,
                    pods=NodePods(node=name, pods=pods, is_complete=True),
                    topology=read_topology(topology, name),
                )
            ).profile
            return replace(captured, spec=replace(captured.spec, sources=sources))
        profile = self._machine(node, configuration)
        reported = read_node(self._document(node))
        spec = replace(
            profile.spec,
            labels=dict(reported.labels) or profile.spec.labels,
            taints=reported.taints,
            conditions=reported.conditions,
            pods=pods,
            sources=sources,
        )
        return replace(profile, metadata=replace(profile.metadata, name=name), spec=spec)

    def _machine(self, node: ListedNode, configuration: dict[str, Any] | None) -> NodeProfile:
        """The profile of a node of this kind without its pods."""
        key = (node.machine, self._cluster.configurations.get(node.name) if configuration else None)
        if key not in self._machines:
            sources = NodeSources(
                node=read_node(self._document(node)),
                configuration=configuration,
                pods=NodePods(node=node.name, is_complete=True),
            )
            self._machines[key] = captured_node(sources).profile
        return self._machines[key]

    def _document(self, node: ListedNode) -> InputFile:
        return InputFile(f"node/{node.name}", node.document)

    def _configuration(self, name: str) -> dict[str, Any] | None:
        content = self._cluster.configurations.get(name)
        if content is None:
            return None
        if content not in self._configurations:
            try:
                self._configurations[content] = read_configz(InputFile(f"node/{name}: {CONFIGZ}", content))
            except InputError as error:
                self._configurations[content] = error
        configuration = self._configurations[content]
        if isinstance(configuration, InputError):
            raise configuration
        return configuration

    def _in_order(self, name: str) -> list[ListedPod]:
        pods = self._cluster.pods.get(name, ())
        return sorted(pods, key=lambda pod: (pod.start_time, pod.namespace, pod.name))

    def _pod(self, placed: ListedPod) -> Pod:
        """The pod; pods with equal specs have the same object as spec, for which much is cached."""
        try:
            if placed.spec not in self._specs:
                written = Pod(spec=decode_json(placed.spec, PodSpec))
                self._specs[placed.spec] = with_canonical_quantities(written).spec
            if placed.status not in self._statuses:
                self._statuses[placed.status] = decode_json(placed.status, PodStatus)
        except JSON_ERRORS as error:
            source = f"pod/{placed.name} of namespace {placed.namespace}"
            raise InputError([Fault(source=source, rule=str(error))]) from None
        meta = ObjectMeta(name=placed.name, namespace=placed.namespace, uid=placed.uid)
        return Pod(metadata=meta, spec=self._specs[placed.spec], status=self._statuses[placed.status])
