"""The webhook for pods that are being created: refuses those that no tracked node could hold, were it empty.

`POST /v1/review-pods` takes and returns AdmissionReviews.
"""

from collections import Counter
from collections.abc import Callable

from starlette.requests import Request
from starlette.responses import Response
from starlette.routing import Route

from nodewright.cluster.serving.routes import BAD_REQUEST, AuthorizedRoute, status_response
from nodewright.model.errors import InputError
from nodewright.model.kubernetes.node_profile import NodeProfile
from nodewright.model.kubernetes.objects import Pod
from nodewright.predict.admit.pod_review import EmptyNodes, decode_review, encode_review, finding_text
from nodewright.scheduling.extender.extender_service import ExtenderService
from nodewright.scheduling.verdicts.tracked_cluster import Basis, TrackedNode

REVIEW_ROUTE = "/v1/review-pods"
MAX_REVIEW_BYTES = 8 << 20
"""More than any object that an API server takes."""


class ReviewRoutes:
    """Answers an API server's reviews with what is found about their pods."""

    def __init__(self, refusals: Callable[[Pod], Counter[str] | None], *, denies: bool) -> None:
        """``refusals`` returns why no node can ever hold a pod; ``denies``: such pods are refused, not only warned of."""
        self._refusals, self._denies = refusals, denies

    def authorized_routes(self) -> tuple[AuthorizedRoute, ...]:
        """All routes."""
        return (AuthorizedRoute(Route(REVIEW_ROUTE, self.review, methods=["POST"])),)

    async def review(self, request: Request) -> Response:
        """The answer to a review; 400 for what is none, so that `failurePolicy` decides."""
        body = await request.body()
        if len(body) > MAX_REVIEW_BYTES:
            return status_response(413, f"the review is larger than {MAX_REVIEW_BYTES} bytes")
        try:
            review = decode_review(body)
            finding = finding_text(self._refusals(review.pod)) if review.pod is not None else ""
        except InputError as error:
            return status_response(BAD_REQUEST, str(error), error.faults)
        content = encode_review(review.uid, finding, denies=self._denies)
        return Response(content, media_type="application/json")


class ClusterReviews:
    """Finds pods that no node of the cluster can ever hold."""

    def __init__(self, service: ExtenderService) -> None:
        self._service = service
        self._empty_nodes = EmptyNodes()
        self._profiles: dict[str, NodeProfile | None] = {}

    def refusals(self, pod: Pod) -> Counter[str] | None:
        """The reasons of the nodes, all of which refuse the pod; None: one can hold it, or that is not known."""
        if not self._service.is_ready:
            return None
        nodes = self._service.cluster.nodes
        for name in [name for name in self._profiles if name not in nodes]:
            del self._profiles[name]
            self._empty_nodes.remove(name)
        for name, node in nodes.items():
            self._update(name, node)
        return self._empty_nodes.refusals(pod)

    def _update(self, name: str, node: TrackedNode) -> None:
        """Takes over the node's profile, if it is another than before."""
        profile = node.profile if node.basis is not Basis.UNKNOWN else None
        if name in self._profiles and self._profiles[name] is profile:
            return
        self._profiles[name] = profile
        try:
            self._empty_nodes.put(name, profile)
        except InputError:
            self._empty_nodes.put(name, None)
