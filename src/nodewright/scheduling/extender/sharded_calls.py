"""The calls of schedulers, split among workers by the owners of the nodes, and their answers put together."""

import asyncio
import time
from collections import Counter
from collections.abc import Awaitable, Callable, Mapping
from typing import TypeVar

import msgspec

from nodewright.cluster.client.cluster_api import ApiError
from nodewright.documents.profiles.profile_yaml import object_document
from nodewright.model.errors import InputError
from nodewright.model.kubernetes.objects import Pod
from nodewright.scheduling.extender.extender_metrics import ExtenderCounts, ExtenderMetrics
from nodewright.scheduling.extender.extender_service import NOT_READY, Binder, NotReadyError, ServiceOptions
from nodewright.scheduling.extender.shard_messages import (
    AdmitShare,
    AdmitShareAnswer,
    BindAnswer,
    BindShare,
    CountsAnswer,
    CountsShare,
    FilterAnswer,
    FilterShare,
    RankAnswer,
    RankShare,
    ReviewAnswer,
    ReviewShare,
    ShareAnswer,
    ShareFault,
    ShareRequest,
    VictimAnswer,
    VictimShare,
)
from nodewright.scheduling.extender.worker_link import WorkerLostError
from nodewright.scheduling.verdicts.admit_answer import (
    AdmitAnswer,
    AdmitRequest,
    RankedCandidates,
    checked_request,
    scored_answer,
)
from nodewright.scheduling.verdicts.extender_protocol import (
    binding_result,
    decode_binding,
    decode_call,
    decode_preemption,
    filter_error,
    filter_result,
    preemption_result,
    priority_list,
)
from nodewright.scheduling.verdicts.node_owners import NodeOwners
from nodewright.scheduling.verdicts.placement_decisions import FilteredNodes, ProposedVictims, ranked_scores

A = TypeVar("A", bound=ShareAnswer)
AskWorker = Callable[[int, ShareRequest], Awaitable[ShareAnswer]]
"""Asks the worker of this number.

Errors: WorkerLostError.
"""


class ShardedCalls:
    """Fulfils `SchedulerCalls` with workers, each of which answers for its nodes.

    The nodes of a worker that does not answer are unknown: they pass, or are refused, as ``options.fails_open`` says.
    """

    def __init__(self, owners: NodeOwners, ask: AskWorker, binder: Binder, options: ServiceOptions) -> None:
        self.metrics = ExtenderMetrics()
        self.may_lead: Callable[[], bool] = lambda: True
        """Whether this process is the one that answers."""
        self.reasons: dict[int, str] = dict.fromkeys(range(owners.count), NOT_READY)
        """Why workers are not ready; without those that are."""
        self._owners, self._ask, self._binder, self._options = owners, ask, binder, options

    @property
    def not_ready_reason(self) -> str:
        """Why calls are not answered: not the leader, or no worker is ready; empty: they are."""
        if not self.may_lead():
            return "not the leader"
        return next(iter(self.reasons.values())) if len(self.reasons) == self._owners.count else ""

    async def filter(self, body: bytes) -> bytes:
        """The answer to filter."""
        started_s, call = time.perf_counter(), decode_call(body)
        names = call.candidates.names
        result = "answered"
        if not self.not_ready_reason or self._options.fails_open:
            split = self._owners.split(names)
            merged = await self._filtered(names, {n: FilterShare(call.pod, own) for n, own in split.items()})
            if not merged.passed and names:
                waiting = {n: FilterShare(call.pod, own, waits=True) for n, own in split.items()}
                merged = await self._filtered(names, waiting)
            answer = filter_result(merged, call.candidates)
        else:
            answer, result = filter_error(NOT_READY), "not ready"
        self._record("filter", result, started_s)
        return answer

    async def _filtered(self, names: tuple[str, ...], shares: Mapping[int, FilterShare]) -> FilteredNodes:
        answers = await self._answers(shares, FilterAnswer)
        failed: dict[str, str] = {}
        unresolvable: dict[str, str] = {}
        for answer in answers.values():
            failed |= answer.failed
            unresolvable |= answer.unresolvable
        if not self._options.fails_open:
            lost = [name for name in names if self._owners.owner(name) not in answers]
            failed |= {name: f"{NOT_READY}: worker {self._owners.owner(name)}" for name in lost}
        passed = tuple(name for name in names if name not in failed and name not in unresolvable)
        order = {name: place for place, name in enumerate(names)}
        return FilteredNodes(
            passed=passed,
            failed=dict(sorted(failed.items(), key=lambda item: order[item[0]])),
            unresolvable=dict(sorted(unresolvable.items(), key=lambda item: order[item[0]])),
            decisions={},
        )

    async def prioritize(self, body: bytes) -> bytes:
        """The answer to prioritize."""
        started_s, call = time.perf_counter(), decode_call(body)
        names = call.candidates.names
        if self.not_ready_reason:
            self._record("prioritize", "not ready", started_s)
            return priority_list(dict.fromkeys(names, 0))
        shares = {owner: RankShare(call.pod, own) for owner, own in self._owners.split(names).items()}
        ranks: dict[str, tuple[int, int]] = {}
        scores: dict[str, int] = {}
        for answer in (await self._answers(shares, RankAnswer)).values():
            ranks |= answer.ranks
            scores |= answer.scores
        self._record("prioritize", "answered", started_s)
        by_rank = ranked_scores(ranks, names)
        return priority_list({name: scores.get(name, by_rank[name]) for name in names})

    async def preempt(self, body: bytes) -> bytes:
        """The answer to preempt."""
        started_s, call = time.perf_counter(), decode_preemption(body)
        if self.not_ready_reason and not self._options.fails_open:
            self._record("preempt", "not ready", started_s)
            raise NotReadyError(NOT_READY)
        shares = {
            owner: VictimShare(call.pod, {name: call.proposals[name] for name in own})
            for owner, own in self._owners.split(call.proposals).items()
        }
        answers = await self._answers(shares, VictimAnswer)
        chosen: dict[str, ProposedVictims] = {}
        for name, proposal in call.proposals.items():
            answer = answers.get(self._owners.owner(name))
            if answer is None:
                known = proposal if self._options.fails_open and not self._options.strict else None
            else:
                known = answer.chosen.get(name)
            if known is not None and known.uids:
                chosen[name] = known
        self._record("preempt", "answered", started_s)
        return preemption_result(chosen)

    async def bind(self, body: bytes) -> bytes:
        """The answer to bind, of the owner of the node; without it the pod returns to the queue, or is bound unchecked."""
        started_s, call = time.perf_counter(), decode_binding(body)
        owner = self._owners.owner(call.node)
        error = NOT_READY if not self.may_lead() and not self._options.fails_open else ""
        if not error:
            answers = await self._answers({owner: BindShare(body)}, BindAnswer)
            if owner in answers:
                self._record("bind", "answered", started_s)
                return answers[owner].content
            error = f"{NOT_READY}: worker {owner}"
            if self._options.fails_open:
                try:
                    await self._binder.bind(call)
                    error = ""
                except ApiError as failure:
                    error = str(failure)
        self._record("bind", "refused" if error else "open", started_s)
        return binding_result(error)

    async def admit(self, request: AdmitRequest) -> AdmitAnswer:
        """The answers of nodes about a pod."""
        started_s, query = time.perf_counter(), checked_request(request)
        pod = msgspec.json.encode(request.pod)
        shares: dict[int, ShareRequest] = {
            owner: AdmitShare(pod, own, request.strict)
            for owner, own in self._shared_names(request.nodes).items()
        }
        answers = await self._answers(shares, AdmitShareAnswer)
        if self.not_ready_reason or len(answers) < len(shares):
            self._record("admit", "not ready", started_s)
            raise NotReadyError(NOT_READY)
        nodes = {node.name: node for answer in answers.values() for node in answer.candidates.nodes}
        names = sorted(nodes) if request.nodes is None else dict.fromkeys(request.nodes)
        ranks = {name: rank for answer in answers.values() for name, rank in answer.candidates.ranks.items()}
        candidates = RankedCandidates(tuple(nodes[name] for name in names), ranks)
        self._record("admit", "answered", started_s)
        return scored_answer(query.pod.full_name, candidates)

    def _shared_names(self, names: tuple[str, ...] | None) -> Mapping[int, list[str] | None]:
        return dict.fromkeys(range(self._owners.count)) if names is None else self._owners.split(names)

    async def refusals(self, pod: Pod) -> Counter[str] | None:
        """The reasons of all nodes why they can never hold a pod; None: one can, or that is not known."""
        content = msgspec.json.encode(object_document(pod), enc_hook=str)
        shares = {owner: ReviewShare(content) for owner in range(self._owners.count)}
        answers = await self._answers(shares, ReviewAnswer)
        total = Counter[str]()
        for owner in shares:
            refusals = answers[owner].refusals if owner in answers else None
            if refusals is None:
                return None
            total.update(refusals)
        return total

    async def counts(self) -> ExtenderCounts:
        """What this process and all workers have counted."""
        total = self.metrics.call_counts()
        for answer in (await self.update_readiness()).values():
            total = total.plus(answer.counts)
        return total

    async def update_readiness(self) -> Mapping[int, CountsAnswer]:
        """Asks all workers whether they are ready; their answers."""
        answers = await self._answers(dict.fromkeys(range(self._owners.count), CountsShare()), CountsAnswer)
        reasons = {
            owner: answers[owner].not_ready_reason if owner in answers else f"{NOT_READY}: worker {owner}"
            for owner in range(self._owners.count)
        }
        self.reasons = {owner: reason for owner, reason in reasons.items() if reason}
        return answers

    def record_invalid(self, verb: str) -> None:
        """Counts a call that could not be decoded."""
        self.metrics.calls[verb, "invalid"] += 1

    async def _answers(self, shares: Mapping[int, ShareRequest], kind: type[A]) -> dict[int, A]:
        """The answers of the workers, without those that do not answer or are not ready.

        Errors: InputError for a request that a worker finds invalid.
        """

        async def answer_of(owner: int) -> tuple[int, ShareAnswer]:
            try:
                return owner, await self._ask(owner, shares[owner])
            except WorkerLostError as error:
                return owner, ShareFault(str(error))

        answers: dict[int, A] = {}
        for owner, answer in await asyncio.gather(*map(answer_of, shares)):
            if isinstance(answer, kind):
                answers[owner] = answer
            elif isinstance(answer, ShareFault) and answer.faults:
                raise InputError(answer.faults)
        return answers

    def _record(self, verb: str, result: str, started_s: float) -> None:
        self.metrics.record_call(verb, result, time.perf_counter() - started_s)
