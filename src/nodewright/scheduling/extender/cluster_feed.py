"""Nodes and pods of the API server for the tracked cluster, and predictions of nodes without a fresh export."""

from collections.abc import Callable, Mapping
from typing import Any

import msgspec
from msgspec.structs import replace

from nodewright.cluster.client.cluster_api import ClusterAPI
from nodewright.cluster.client.reflector import Reflector
from nodewright.cluster.exports.export_places import EXPORT_URL, ExportPlaces, NodeAddress
from nodewright.cluster.objects.node_sources import NodeReading, cluster_node
from nodewright.cluster.tasks.timing import Clock
from nodewright.documents.formats.decode import examined
from nodewright.engine.core.predicates.node_affinity import affinity_mismatch
from nodewright.model.errors import Fault, InputError
from nodewright.model.kubernetes.node_profile import NodeProfile
from nodewright.model.kubernetes.objects import Pod, Taint, untolerated, with_cordon
from nodewright.model.reasons.predicates import taint_text
from nodewright.model.reasons.reason import sentence
from nodewright.scheduling.verdicts.extender_protocol import decode_pod
from nodewright.scheduling.verdicts.pod_queries import PodQuery, pod_query
from nodewright.scheduling.verdicts.tracked_cluster import Basis, ClusterBudget, TrackedCluster
from nodewright.scheduling.verdicts.verdict_ledger import ComparedVerdict, VerdictLedger

NODES_PATH, PODS_PATH = "/api/v1/nodes", "/api/v1/pods"
BUDGETS_PATH = "/apis/policy/v1/poddisruptionbudgets"
_TERMINAL = ("Succeeded", "Failed")
PREDICTION_BATCH_S, PREDICTION_PAUSE_S = 0.01, 0.05
"""How long predictions are computed without a pause for calls, and the pause."""


class ClusterFeed:
    """Follows nodes and pods, and keeps the tracked cluster as they are."""

    def __init__(self, api: ClusterAPI, cluster: TrackedCluster, clock: Clock) -> None:
        self.nodes, self.pods = (
            Reflector(api, NODES_PATH, "", clock),
            Reflector(api, PODS_PATH, "", clock),
        )
        self.budgets = Reflector(api, BUDGETS_PATH, "", clock)
        self.ledger = VerdictLedger()
        self.awaits_export: Callable[[str], bool] = lambda _name: False
        """Whether the first export of a node is on its way: it is not predicted meanwhile."""
        self.export_max_age_s, self.export_places = float("inf"), ExportPlaces()
        self.on_node: Callable[[str, str], None] = lambda _name, _url: None
        """Called with the name of each node and the URL of its export; an empty one for a node that is gone."""
        self.on_refused_url: Callable[[str, str], None] = self.export_failed
        """Called with a node and why its exporter is not asked."""
        self.on_compared: Callable[[ComparedVerdict], None] = lambda _comparison: None
        self._cluster, self._clock = cluster, clock
        self._bound: dict[str, str] = {}
        """The nodes of active pods, by uid."""
        self._node_names: dict[str, str] = {}
        self._taints: dict[str, tuple[Taint, ...]] = {}
        """The taints of the Nodes, by name, with that of a cordoned one."""
        self._outdated: dict[str, None] = {}
        """Nodes whose prediction is not up to date."""
        self.nodes.on_change, self.pods.on_change = self._node_changed, self._pod_changed
        self.budgets.on_change = self._budget_changed
        self.nodes.reduce = self.pods.reduce = trimmed_object
        self.budgets.reduce = checked_budget

    @property
    def reflectors(self) -> tuple[Reflector, ...]:
        """What follows the objects."""
        return self.nodes, self.pods, self.budgets

    @property
    def has_listed(self) -> bool:
        """Whether nodes and pods have been read once; budgets only matter for the choice of victims."""
        return self.nodes.has_listed and self.pods.has_listed

    def pod(self, uid: str) -> Pod | None:
        """The pod with this uid.

        Errors: InputError for a pod that cannot be decoded.
        """
        document = self.pods.objects.get(uid)
        return None if document is None else decode_pod(document)

    def disagreement(self, name: str, pod: Pod) -> str:
        """Why no scheduler binds the pod to this node, by what its Node shows; empty: nothing, or there is no Node."""
        taints = self._taints.get(name)
        if taints is None:
            return ""
        if pod.spec.scheduling_gates:
            return "it has scheduling gates"
        if not_tolerated := untolerated(taints, pod.spec.tolerations, comparisons=True):
            return f"not tolerated: {', '.join(map(taint_text, not_tolerated))}"
        mismatch = affinity_mismatch(pod.spec, name, self._cluster.nodes[name].labels)
        return "" if mismatch is None else sentence(mismatch)

    async def predict(self) -> None:
        """Predicts nodes without a fresh export until it is cancelled."""
        while True:
            self._cluster_times()
            end_s = self._clock.monotonic_s() + PREDICTION_BATCH_S
            due = [name for name in self._outdated if not self.awaits_export(name)]
            for name in due:
                self._predict_node(name)
                if self._clock.monotonic_s() >= end_s:
                    break
            is_over = all(name not in self._outdated for name in due)
            await self._clock.sleep(1.0 if is_over else PREDICTION_PAUSE_S)

    def _cluster_times(self) -> None:
        now_s = self._clock.monotonic_s()
        for name in tuple(self._cluster.stale_nodes(now_s=now_s, after_s=self.export_max_age_s)):
            self._cluster.mark_unknown(name, "its export is too old")
            self._outdated[name] = None
        self._cluster.expire_reservations(now_s=now_s)

    def _budget_changed(self, _uid: str) -> None:
        documents = self.budgets.objects.items()
        self._cluster.budgets = {uid: ClusterBudget.of(document) for uid, document in documents}

    def export_failed(self, name: str, error: str) -> None:
        """Notes that a node's export cannot be: the node is predicted instead."""
        self._cluster.mark_unknown(name, error)
        self._outdated[name] = None

    # ------------------------------------------------------------ nodes

    def _node_changed(self, uid: str) -> None:
        known, objects = self._node_names, self.nodes.objects
        for changed in [uid] if uid else sorted({*known, *objects}):
            document = objects.get(changed)
            name = known.pop(changed, "") if document is None else str(document["metadata"]["name"])
            if document is None:
                if name and name not in known.values():
                    self._taints.pop(name, None)
                    self._cluster.remove_node(name)
                    self.on_node(name, "")
                continue
            known[changed] = name
            meta = document["metadata"]
            self._cluster.set_labels(name, meta.get("labels") or {})
            self._taints[name] = node_taints(document)
            try:
                self.on_node(name, export_url(document, self.export_places))
            except InputError as error:
                self.on_refused_url(name, str(error.faults[0]))
            self._mark_outdated(name)

    def _mark_outdated(self, name: str) -> None:
        node = self._cluster.nodes.get(name)
        if node is not None and node.basis is not Basis.EXACT:
            self._outdated[name] = None

    def _predict_node(self, name: str) -> None:
        self._outdated.pop(name, None)
        node = self._cluster.nodes.get(name)
        if node is None or node.basis is Basis.EXACT or not self.has_listed:
            return
        note = node.note if node.basis is Basis.UNKNOWN else "no fresh export"
        now_s = self._clock.monotonic_s()
        try:
            profile = self._predicted_profile(name, node.profile)
            self._cluster.put_prediction(name, profile, note=note, now_s=now_s)
        except InputError as error:
            self._cluster.mark_unknown(name, str(error.faults[0]))
        except Exception as error:  # noqa: BLE001 - one odd object must not end the predictions of the other nodes
            self._cluster.mark_unknown(name, f"the Node or a pod cannot be read: {error}")

    def _predicted_profile(self, name: str, exported: NodeProfile | None) -> NodeProfile:
        """The last exported machine and configuration, or what the Node object shows, with the pods of the API server.

        Errors: InputError.
        """
        pods = sorted(
            (
                self.pods.objects[uid]
                for uid in self._cluster.nodes[name].api_pods
                if uid in self.pods.objects
            ),
            key=lambda pod: (str(pod["metadata"].get("creationTimestamp")), str(pod["metadata"]["uid"])),
        )
        if exported is not None and exported.spec.kubelet_configuration:
            known = tuple(decode_pod(document) for document in pods)
            return replace(exported, spec=replace(exported.spec, pods=known, allocations=None))
        document = next(item for item in self.nodes.objects.values() if item["metadata"]["name"] == name)
        items = tuple(_raw({"apiVersion": "v1", "kind": "Pod", **pod}) for pod in pods)
        node = bytes(_raw({"apiVersion": "v1", "kind": "Node", **document}))
        return cluster_node(name, NodeReading(node=node, pods=items)).profile

    # ------------------------------------------------------------ pods

    def _pod_changed(self, uid: str) -> None:
        objects = self.pods.objects
        for changed in [uid] if uid else sorted({*self._bound, *objects}):
            self._apply_pod(changed, objects.get(changed))

    def _apply_pod(self, uid: str, document: dict[str, Any] | None) -> None:
        known = self._bound.get(uid, "")
        node = _node_of(document or {})
        status = (document or {}).get("status") or {}
        is_active = bool(document and node) and status.get("phase") not in _TERMINAL
        if document is not None and self.ledger.awaits(uid):
            self._compare(document)
        if known and (not is_active or known != node):
            self._bound.pop(uid)
            self._cluster.pod_gone(known, uid, now_s=self._clock.monotonic_s())
            self._mark_outdated(known)
        if document is None:
            self.ledger.forget(uid)
        elif is_active and uid not in self._bound:
            self._add_bound(node, document)

    def _add_bound(self, node: str, document: Mapping[str, Any]) -> None:
        try:
            query = pod_query(decode_pod(document))
        except InputError:
            return  # No API server stores it; the kubelet cannot read it either.
        self._bound[query.uid] = node
        self.note_binding(node, query)
        self._mark_outdated(node)

    def note_binding(self, node: str, query: PodQuery) -> None:
        """Notes that a pod is bound; of one that another scheduler has bound the verdict is compared as well."""
        tracked = self._cluster.nodes.get(node)
        is_exact = tracked is not None and tracked.basis is Basis.EXACT
        is_known = tracked is not None and (query.uid in tracked.numbers or query.uid in tracked.reservations)
        if is_exact and not is_known and self.has_listed:
            self.ledger.expect(query.uid, node, self._cluster.verdict(node, query))
        self._cluster.pod_bound(node, query, now_s=self._clock.monotonic_s())

    def _compare(self, document: Mapping[str, Any]) -> None:
        try:
            comparison = self.ledger.compare(decode_pod(document))
        except InputError:
            return
        if comparison is not None:
            self.on_compared(comparison)


def node_taints(document: Mapping[str, Any]) -> tuple[Taint, ...]:
    """The taints of a Node; a cordoned one has another."""
    spec = document.get("spec") or {}
    try:
        taints = msgspec.convert(spec.get("taints") or (), examined(tuple[Taint, ...]))
    except msgspec.ValidationError:
        taints = ()
    return with_cordon(taints, is_unschedulable=bool(spec.get("unschedulable")))


def trimmed_object(document: dict[str, Any]) -> dict[str, Any]:
    """The object without what its managers note in it, and without images, which are most of a Node."""
    metadata = {key: value for key, value in document["metadata"].items() if key != "managedFields"}
    status = {key: value for key, value in (document.get("status") or {}).items() if key != "images"}
    return {**document, "metadata": metadata, "status": status}


def checked_budget(document: dict[str, Any]) -> dict[str, Any]:
    """The object, if it is a PodDisruptionBudget; any error otherwise."""
    ClusterBudget.of(document)
    return document


def _node_of(document: Mapping[str, Any]) -> str:
    """The node that a pod is bound to; empty: none."""
    return str((document.get("spec") or {}).get("nodeName") or "")


def export_url(document: Mapping[str, Any], places: ExportPlaces) -> str:
    """The URL of the export of a Node; empty: it names none.

    Errors: InputError for one that its exporter must not have.
    """
    annotation = (document["metadata"].get("annotations") or {}).get(EXPORT_URL)
    addresses = (document.get("status") or {}).get("addresses") or ()
    try:
        return places.url_of(str(annotation or ""), msgspec.convert(addresses, tuple[NodeAddress, ...]))
    except msgspec.ValidationError as error:
        raise InputError([Fault(path="status.addresses", rule=str(error))]) from None


def _raw(document: Mapping[str, Any]) -> msgspec.Raw:
    return msgspec.Raw(msgspec.json.encode(document))
