"""The node as a NodeProfile over HTTP: what it is, which pods it has, and what they hold."""

from starlette.requests import Request
from starlette.responses import Response
from starlette.routing import Route

from nodewright.api.agent import Agent
from nodewright.api.answers import document
from nodewright.api.client import PROFILE_ROUTE
from nodewright.api.entries import Entry
from nodewright.model.profile import NodeProfile
from nodewright.render.documents import plain
from nodewright.render.journals import profile_now
from nodewright.render.profiles import profile_document


class ProfileRoutes:
    """The route of the profile, for those who ask what a node like this one would do."""

    def __init__(self, agent: Agent, profile: NodeProfile) -> None:
        """``profile`` is the node without pods."""
        self._agent, self._profile = agent, profile

    def entries(self) -> tuple[Entry, ...]:
        """All of them."""
        return (Entry(Route(f"/{PROFILE_ROUTE}", self.profile)),)

    async def profile(self, _request: Request) -> Response:
        """The node as it is now."""
        return document(plain(profile_document(profile_now(self._profile, self._agent.board.mind.node))))
