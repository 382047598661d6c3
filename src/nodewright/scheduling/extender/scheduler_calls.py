"""What the servers of the extender call, whether one process answers or several share the nodes."""

from collections import Counter
from typing import Protocol

from nodewright.model.kubernetes.objects import Pod
from nodewright.scheduling.extender.extender_metrics import ExtenderCounts
from nodewright.scheduling.extender.extender_service import ExtenderService
from nodewright.scheduling.extender.pod_reviews import ClusterReviews
from nodewright.scheduling.verdicts.admit_answer import AdmitAnswer, AdmitRequest


class SchedulerCalls(Protocol):
    """Answers the calls of schedulers: one process, or several that share the nodes."""

    @property
    def not_ready_reason(self) -> str:
        """Why calls are not answered from what the cluster holds; empty: they are."""

    async def filter(self, body: bytes) -> bytes:
        """The answer to filter.

        Errors: InputError.
        """

    async def prioritize(self, body: bytes) -> bytes:
        """The answer to prioritize.

        Errors: InputError; CustomPolicyError.
        """

    async def preempt(self, body: bytes) -> bytes:
        """The answer to preempt.

        Errors: InputError; NotReadyError.
        """

    async def bind(self, body: bytes) -> bytes:
        """The answer to bind.

        Errors: InputError.
        """

    async def admit(self, request: AdmitRequest) -> AdmitAnswer:
        """The answers of nodes about a pod.

        Errors: InputError; NotReadyError.
        """

    async def refusals(self, pod: Pod) -> Counter[str] | None:
        """The reasons of all nodes why they can never hold a pod; None: one can, or that is not known."""

    async def counts(self) -> ExtenderCounts:
        """What is counted."""

    def record_invalid(self, verb: str) -> None:
        """Counts a call that could not be decoded."""


class SingleProcess:
    """Fulfils `SchedulerCalls` with the service of this process."""

    def __init__(self, service: ExtenderService) -> None:
        self._service, self._reviews = service, ClusterReviews(service)

    @property
    def not_ready_reason(self) -> str:
        """Why calls are not answered from what the cluster holds; empty: they are."""
        return self._service.not_ready_reason

    async def filter(self, body: bytes) -> bytes:
        """The answer to filter."""
        return await self._service.filter_after_exports(body)

    async def prioritize(self, body: bytes) -> bytes:
        """The answer to prioritize."""
        return self._service.prioritize(body)

    async def preempt(self, body: bytes) -> bytes:
        """The answer to preempt."""
        return self._service.preempt(body)

    async def bind(self, body: bytes) -> bytes:
        """The answer to bind."""
        return await self._service.bind(body)

    async def admit(self, request: AdmitRequest) -> AdmitAnswer:
        """The answers of nodes about a pod."""
        return self._service.admit(request)

    async def refusals(self, pod: Pod) -> Counter[str] | None:
        """The reasons of all nodes why they can never hold a pod; None: one can, or that is not known."""
        return self._reviews.refusals(pod)

    async def counts(self) -> ExtenderCounts:
        """What is counted."""
        return self._service.counts()

    def record_invalid(self, verb: str) -> None:
        """Counts a call that could not be decoded."""
        self._service.record_invalid(verb)
