"""What commands share that ask live nodes: agents, and PodResources sockets."""

import json
from pathlib import Path

from nodewright.api.client import PROFILE_ROUTE, Client, RefusedError
from nodewright.model.profile import NodeProfile
from nodewright.world.captured.told import ToldResources
from nodewright.world.errors import WorldError
from nodewright.world.profiles import profile_from


def told_resources(socket: Path) -> ToldResources:
    """What a kubelet's or an agent's PodResources socket says.

    Errors: WorldError where nobody answers, or what is needed to ask is not installed.
    """
    try:
        from nodewright.world.podresources.client import PodResourcesClient  # noqa: PLC0415 - an extra
    except ImportError as error:
        raise WorldError(
            "ask PodResources at", str(socket), f"{error}: pip install 'nodewright[agent]'"
        ) from None
    client = PodResourcesClient(socket)
    return ToldResources(pods=client.pods(), allocatable=client.allocatable())


def agent_profile(socket: Path) -> NodeProfile:
    """The node of a running agent, with its pods and what they hold.

    Errors: WorldError where no agent answers.
    """
    try:
        answer = Client(socket).get(PROFILE_ROUTE)
    except RefusedError as error:
        raise WorldError("ask the agent at", str(socket), str(error)) from None
    return profile_from(json.dumps(answer).encode(), str(socket))
