"""The verbs of the extender: filter, prioritize, preempt, bind, and admit."""

import asyncio
import time
from collections.abc import Callable, Mapping, Sequence
from hashlib import sha256

import msgspec

from nodewright.cluster.client.cluster_api import ApiError, ClusterAPI, api_path
from nodewright.cluster.tasks.timing import Clock
from nodewright.model.values.bounded_cache import BoundedCache
from nodewright.scheduling.extender.cluster_feed import ClusterFeed
from nodewright.scheduling.extender.extender_metrics import ExtenderMetrics
from nodewright.scheduling.verdicts.admit_answer import AdmitAnswer, AdmitRequest, admit_answer
from nodewright.scheduling.verdicts.extender_protocol import (
    BindCall,
    ExtenderCall,
    binding_result,
    decode_binding,
    decode_call,
    decode_pod,
    decode_preemption,
    filter_error,
    filter_result,
    preemption_result,
    priority_list,
)
from nodewright.scheduling.verdicts.placement_decisions import (
    FilteredNodes,
    Scorer,
    admitting_soon,
    filtered_nodes,
    node_scores,
    refusal_text,
    sufficient_victims,
)
from nodewright.scheduling.verdicts.pod_queries import PodQuery, pod_query
from nodewright.scheduling.verdicts.tracked_cluster import TrackedCluster

DEFAULT_SCHEDULER = "default-scheduler"
NOT_READY = "the extender has not read the cluster yet"
_MAX_CALL_BYTES, _MAX_CALLS_BYTES = 1 << 20, 16 << 20
"""Of a call that is remembered, and of all together."""
EXPORT_WAIT_S, BIND_WAIT_S, _EXPORT_POLL_S = 0.3, 3.0, 0.01
"""How long filter and bind wait for the export that follows the end of a pod, and how often it is looked for.

A scheduler filters one pod at a time, and binds beside that.
"""

_JUDGED_AT_ONCE, _JUDGING_PAUSE_S, _MAX_RECURRING = 8, 0.001, 16
"""How many nodes are judged ahead, a tenth of a millisecond each, before calls are handled again for a moment."""


class NotReadyError(Exception):
    """The extender cannot answer yet, or is not the leader."""


class ServiceOptions(msgspec.Struct, frozen=True, kw_only=True):
    """How the extender decides where it does not know."""

    strict: bool = False
    """Whether nodes are refused on a guess."""
    fails_open: bool = False
    """Whether nodes pass, and pods are bound unchecked, before the cluster has been read."""
    scorer: Scorer | None = None
    scheduler_names: tuple[str, ...] = ()
    """The schedulers whose pods are bound; none: those of all."""


class ExtenderService:
    """Answers the calls of schedulers."""

    def __init__(
        self,
        cluster: TrackedCluster,
        feed: ClusterFeed,
        binder: "ApiBinder",
        clock: Clock,
        options: ServiceOptions,
    ) -> None:
        self.cluster, self.feed, self.options = cluster, feed, options
        self.metrics = ExtenderMetrics()
        self.export_errors: Mapping[str, int] = {}
        """The exports that were of no use, by kind."""
        self.may_lead: Callable[[], bool] = lambda: True
        """Whether this process is the one that answers."""
        self.has_settled: Callable[[], bool] = lambda: True
        """Whether the exports of all nodes have been read, or are known to be missing."""
        self._binder, self._clock = binder, clock
        self._calls = BoundedCache[bytes, ExtenderCall](_MAX_CALLS_BYTES)
        self._recurring = asyncio.LifoQueue[PodQuery](_MAX_RECURRING)
        """Pods to judge ahead: pods with the same key have come before, and most answers were not known."""

    @property
    def is_ready(self) -> bool:
        """Whether calls are answered from what the cluster holds."""
        return self.feed.has_listed and self.has_settled() and self.may_lead()

    async def filter_after_exports(self, body: bytes) -> bytes:
        """The answer to filter, a moment later if an export that is on its way may change that no node passes.

        Errors: InputError.
        """
        call = self._decoded(body)
        if not self.is_ready:
            return self._filter(call)
        soon = await self.exports_awaited(call.query, call.candidates.names, EXPORT_WAIT_S)
        return self._filter(call, soon)

    async def exports_awaited(self, query: PodQuery, names: Sequence[str], limit_s: float) -> tuple[str, ...]:
        """Waits while only pods that have just ended keep all of these nodes from passing; those nodes at the limit."""
        started_s, strict = self._clock.monotonic_s(), self.options.strict
        since_s = started_s - limit_s
        while soon := admitting_soon(self.cluster, query, names, since_s=since_s, strict=strict):
            if self._clock.monotonic_s() - started_s >= limit_s:
                break
            await self._clock.sleep(_EXPORT_POLL_S)
        return soon

    def filter(self, body: bytes) -> bytes:
        """The answer to filter at once.

        Errors: InputError.
        """
        return self._filter(self._decoded(body))

    def _filter(self, call: ExtenderCall, soon: Sequence[str] = ()) -> bytes:
        """The answer to filter; nodes that are expected to admit the pod ``soon`` pass if no other does."""
        started_s = time.perf_counter()
        if not self.is_ready:
            return self._unready_filter(call, started_s)
        answer = self.filtered(call.query, call.candidates.names, soon)
        result = filter_result(answer, call.candidates)
        self._record("filter", "answered", started_s)
        return result

    def filtered(self, query: PodQuery, names: Sequence[str], soon: Sequence[str]) -> FilteredNodes:
        """The nodes that pass.

        A pod that finds no node waits for the next event, one whose binding fails is tried again at once: so a node
        whose export is late passes, and bind decides.
        """
        answers, counts = self.cluster.answers, self.cluster.pool.counts
        is_recurring, computed = query.key in answers and not query.selects_nodes, counts.computed
        answer = filtered_nodes(self.cluster, query, names, strict=self.options.strict)
        self.metrics.record_verdicts(answer.decisions)
        is_slow = 2 * (counts.computed - computed) > len(names)
        if is_recurring and is_slow and not self._recurring.full() and answers.begin(query.key):
            self._recurring.put_nowait(query)
        return answer if answer.passed or not soon else answer.with_passed(soon)

    async def judge_ahead(self) -> None:
        """Judges the other nodes about pods that recur, between calls: a scheduler asks about some nodes at a time."""
        while True:
            query = await self._recurring.get()
            known = self.cluster.answers.table(query.key)
            unjudged = [name for name in self.cluster.nodes if name not in known]
            for first in range(0, len(unjudged), _JUDGED_AT_ONCE):
                self.cluster.verdicts(unjudged[first : first + _JUDGED_AT_ONCE], query)
                await self._clock.sleep(_JUDGING_PAUSE_S)

    def _unready_filter(self, call: ExtenderCall, started_s: float) -> bytes:
        if not self.options.fails_open:
            self._record("filter", "not ready", started_s)
            return filter_error(NOT_READY)
        everything = FilteredNodes(passed=call.candidates.names, failed={}, unresolvable={}, decisions={})
        self._record("filter", "open", started_s)
        return filter_result(everything, call.candidates)

    def prioritize(self, body: bytes) -> bytes:
        """The answer to prioritize.

        Errors: InputError.
        """
        started_s = time.perf_counter()
        call = self._decoded(body)
        if not self.is_ready:
            self._record("prioritize", "not ready", started_s)
            return priority_list(dict.fromkeys(call.candidates.names, 0))
        scores = node_scores(self.cluster, call.query, call.candidates.names, self.options.scorer)
        self._record("prioritize", "answered", started_s)
        return priority_list(scores)

    def preempt(self, body: bytes, *, names_pods: bool = True) -> bytes:
        """The answer to preempt; without ``names_pods`` nodes where it would name pods beside the caller's are left out.

        Errors: InputError; NotReadyError.
        """
        started_s = time.perf_counter()
        call = decode_preemption(body)
        if not self.is_ready and not self.options.fails_open:
            self._record("preempt", "not ready", started_s)
            raise NotReadyError(NOT_READY)
        victims = sufficient_victims(self.cluster, call.query, call.proposals, strict=self.options.strict)
        if not names_pods:
            victims = {name: chosen for name, chosen in victims.items() if chosen == call.proposals[name]}
        self._record("preempt", "answered", started_s)
        return preemption_result(victims)

    def admit(self, request: AdmitRequest) -> AdmitAnswer:
        """The answers of nodes about a pod.

        Errors: InputError; NotReadyError.
        """
        started_s = time.perf_counter()
        if not self.is_ready:
            self._record("admit", "not ready", started_s)
            raise NotReadyError(NOT_READY)
        answer = admit_answer(self.cluster, request)
        self._record("admit", "answered", started_s)
        return answer

    async def bind(self, body: bytes) -> bytes:
        """The answer to bind: the pod is checked again, reserved and bound; an error returns it to the queue.

        Errors: InputError.
        """
        started_s = time.perf_counter()
        call = decode_binding(body)
        try:
            error = await self._bound(call)
        except ApiError as failure:
            error = str(failure)
        self._record("bind", "refused" if error else "answered", started_s)
        return binding_result(error)

    async def _bound(self, call: BindCall) -> str:
        """Binds the pod; why it is not bound, empty if it is.

        Errors: ApiError; InputError.
        """
        if not self.is_ready and not self.options.fails_open:
            return NOT_READY
        pod = self.feed.pod(call.pod_uid)
        query = pod_query(pod) if pod is not None else await self._binder.query_of(call)
        if query is None:
            return f"pod {call.pod_namespace}/{call.pod_name} with uid {call.pod_uid} does not exist"
        scheduler, names = query.pod.spec.scheduler_name or DEFAULT_SCHEDULER, self.options.scheduler_names
        if names and scheduler not in names:
            return f"pod {call.pod_namespace}/{call.pod_name} is of the scheduler {scheduler}"
        if reason := self.feed.disagreement(call.node, query.pod):
            return f"node {call.node}: {reason}"
        if self.is_ready:
            await self.exports_awaited(query, (call.node,), BIND_WAIT_S)
        # No other call is handled between the check and the reservation.
        answer = self.cluster.verdict(call.node, query)
        if self.is_ready and answer.refuses(strict=self.options.strict):
            return f"node {call.node}: {refusal_text(answer)}"
        now_s = self._clock.monotonic_s()
        self.cluster.reserve(call.node, query, now_s=now_s)
        self.feed.ledger.expect(query.uid, call.node, answer)
        error = await self._bind_reserved(call, query)
        if error:
            self.feed.ledger.forget(query.uid)
        return error

    async def _bind_reserved(self, call: BindCall, query: PodQuery) -> str:
        try:
            await self._binder.bind(call)
        except ApiError as failure:
            # The server may have bound the pod all the same, now or in an earlier call.
            try:
                node = await self._binder.node_of(call)
            except ApiError:
                # The reservation stays until the pod is seen, or its time is over.
                return str(failure)
            if node != call.node:
                # A request that broke may still be carried out; one that was answered is not.
                if failure.status or node is None or node:
                    self.cluster.release(call.node, query.uid)
                return str(failure)
        self.cluster.pod_bound(call.node, query, now_s=self._clock.monotonic_s())
        return ""

    def metrics_text(self) -> str:
        """All metrics in the Prometheus text format."""
        now_s = self._clock.monotonic_s()
        errors = self.export_errors, {each.path: each.unreadable for each in self.feed.reflectors}
        return self.metrics.text(self.cluster, self.feed.ledger, errors, now_s=now_s)

    @property
    def not_ready_reason(self) -> str:
        """Why calls are not answered from what the cluster holds; empty: they are."""
        if self.is_ready:
            return ""
        is_read = self.feed.has_listed and self.has_settled()
        return "not the leader" if is_read else "the cluster has not been read yet"

    def record_invalid(self, verb: str) -> None:
        """Counts a call that could not be decoded."""
        self.metrics.calls[verb, "invalid"] += 1

    def _decoded(self, body: bytes) -> ExtenderCall:
        """The call; prioritize often follows with what filter has left, or with the same bytes."""
        if len(body) > _MAX_CALL_BYTES:
            return decode_call(body)
        digest = sha256(body).digest()
        known = self._calls.get(digest)
        if known is None:
            known = decode_call(body)
            self._calls.put(digest, known, len(body))
        return known

    def _record(self, verb: str, result: str, started_s: float) -> None:
        self.metrics.record_call(verb, result, time.perf_counter() - started_s)


class ApiBinder:
    """Binds pods to nodes by the API server."""

    def __init__(self, api: ClusterAPI) -> None:
        self._api = api

    async def bind(self, call: BindCall) -> None:
        """Binds the pod with this uid.

        Errors:  ApiError.
        Follows: v1.36, pkg/scheduler/framework/plugins/defaultbinder/default_binder.go, Bind.
        """
        binding = {
            "apiVersion": "v1",
            "kind": "Binding",
            "metadata": {"name": call.pod_name, "namespace": call.pod_namespace, "uid": call.pod_uid},
            "target": {"kind": "Node", "name": call.node},
        }
        await self._api.create(f"{_pod_path(call)}/binding", binding)

    async def node_of(self, call: BindCall) -> str | None:
        """The node of the pod; empty: it has none; None: the pod does not exist, or is another.

        Errors: ApiError.
        """
        query = await self.query_of(call)
        return None if query is None else query.pod.spec.node_name

    async def query_of(self, call: BindCall) -> PodQuery | None:
        """The pod; None: it does not exist, or is another.

        Errors: ApiError, InputError.
        """
        try:
            document = await self._api.read(_pod_path(call), {})
        except ApiError as error:
            if error.status == 404:
                return None
            raise
        pod = decode_pod(document)
        return pod_query(pod) if pod.uid == call.pod_uid else None


def _pod_path(call: BindCall) -> str:
    return api_path("/api/v1", "namespaces", call.pod_namespace, "pods", call.pod_name)
