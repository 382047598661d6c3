"""The error of a request to an API server."""

from nodewright.model.errors import HostError, shortened
from nodewright.model.printable import printable


class ApiError(HostError):
    """A request that the API server refused or did not answer; its text is one line with verb, path and reason."""

    def __init__(  # noqa: PLR0913 - the facts of an answer
        self,
        verb: str,
        path: str,
        error: str,
        *,
        status: int = 0,
        reason: str = "",
        server: str = "",
        retry_after_s: float | None = None,
    ) -> None:
        super().__init__(verb, printable(f"{server}{path}"), printable(shortened(error, 1_000)))
        self.verb, self.path = verb, path
        self.status = status
        """The HTTP status; 0 if no answer was received."""
        self.reason = reason
        """The reason of the API server's Status, e.g. `Forbidden` or `Expired`; empty without a Status."""
        self.retry_after_s = retry_after_s
        """When the server asks for the next attempt, in seconds; None: it does not."""

    @property
    def is_expired(self) -> bool:
        """Whether the resource version or the continue token is too old, so that a new list is needed."""
        return self.status == 410
