"""What a worker answers about its nodes."""

from collections import OrderedDict
from typing import assert_never

from nodewright.documents.output.terminal import print_log_line
from nodewright.model.errors import InputError
from nodewright.model.values.custom_policy import CustomPolicyError
from nodewright.scheduling.extender.extender_service import EXPORT_WAIT_S, ExtenderService
from nodewright.scheduling.extender.pod_reviews import ClusterReviews
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
from nodewright.scheduling.verdicts.admit_answer import candidate_answers
from nodewright.scheduling.verdicts.extender_protocol import decode_sent_pod
from nodewright.scheduling.verdicts.placement_decisions import (
    node_scores,
    placement_ranks,
    sufficient_victims,
)
from nodewright.scheduling.verdicts.pod_queries import PodQuery, pod_query

_MAX_PODS = 64


class ShardAnswers:
    """Answers from the service of a worker."""

    def __init__(self, service: ExtenderService) -> None:
        self._service, self._reviews = service, ClusterReviews(service)
        self._queries: OrderedDict[bytes, PodQuery] = OrderedDict()

    async def answer(self, request: ShareRequest) -> ShareAnswer:
        """The answer; a fault for a request that cannot be answered."""
        try:
            if isinstance(request, CountsShare):
                return CountsAnswer(self._service.not_ready_reason, self._service.counts())
            if isinstance(request, BindShare):
                return BindAnswer(await self._service.bind(request.call))
            if isinstance(request, FilterShare):
                return await self._filtered(request)
            return self._answer_now(request)
        except InputError as error:
            return ShareFault(str(error), error.faults)
        except CustomPolicyError as error:
            print_log_line(f"the scorer of --policies fails: {error}")
            return ShareFault(str(error))

    async def _filtered(self, request: FilterShare) -> ShareAnswer:
        service, query = self._service, self._query(request.pod)
        soon: tuple[str, ...] = ()
        if request.waits:
            soon = await service.exports_awaited(query, request.names, EXPORT_WAIT_S)
        if reason := service.not_ready_reason:
            return ShareFault(reason)
        answer = service.filtered(query, request.names, soon)
        return FilterAnswer(list(answer.passed), dict(answer.failed), dict(answer.unresolvable))

    def _answer_now(self, request: RankShare | VictimShare | AdmitShare | ReviewShare) -> ShareAnswer:
        if reason := self._service.not_ready_reason:
            return ShareFault(reason)
        cluster, options = self._service.cluster, self._service.options
        query = self._query(request.pod)
        match request:
            case RankShare(names=names) if options.scorer is not None:
                return RankAnswer({}, dict(node_scores(cluster, query, names, options.scorer)))
            case RankShare(names=names):
                return RankAnswer(placement_ranks(cluster, query, names), {})
            case VictimShare(proposals=proposals):
                return VictimAnswer(sufficient_victims(cluster, query, proposals, strict=options.strict))
            case AdmitShare(names=names, strict=strict):
                nodes = sorted(cluster.nodes) if names is None else names
                return AdmitShareAnswer(candidate_answers(cluster, query, nodes, strict=strict))
            case ReviewShare():
                refusals = self._reviews.refusals(query.pod)
                return ReviewAnswer(None if refusals is None else dict(refusals))
            case _:
                assert_never(request)

    def _query(self, pod: bytes) -> PodQuery:
        """The pod of a request; several requests about one follow each other.

        Errors: InputError.
        """
        query = self._queries.get(pod)
        if query is None:
            query = self._queries[pod] = pod_query(decode_sent_pod(pod))
            if len(self._queries) > _MAX_PODS:
                self._queries.popitem(last=False)
        return query
