"""The webhook for pods that are being created: `POST /v1/review-pods` takes and returns AdmissionReviews."""

from collections import Counter
from collections.abc import Callable

from starlette.requests import Request
from starlette.responses import Response
from starlette.routing import Route

from nodewright.cluster.serving.routes import BAD_REQUEST, AuthorizedRoute, status_response
from nodewright.model.errors import InputError
from nodewright.model.kubernetes.objects import Pod
from nodewright.predict.admit.pod_review import decode_review, encode_review, finding_text

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
