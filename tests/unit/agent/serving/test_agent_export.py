"""The agent's own export: its pods and what they hold, numbered, and awaited by clients."""

import asyncio

from tests.support.kubelet_api import HTTPSAgent, with_served_agent

from nodewright.agent.serving.kubelet_routes import AgentExport
from nodewright.documents.profiles.node_export import encode_node_export, read_node_export
from nodewright.predict.node import Node
from nodewright.testing.nodes import STATIC_CPUS, a_profile
from nodewright.testing.objects import a_guaranteed_pod


def export_of(node: HTTPSAgent) -> AgentExport:
    return AgentExport(node.agent, a_profile(**STATIC_CPUS))


@with_served_agent()
async def test_the_export_decides_as_the_agent(node: HTTPSAgent) -> None:
    export = export_of(node)
    empty = export.current()
    assert empty is not None
    assert not await export.wait_after(empty.export.generation, 0)
    await node.bench.add_pods(a_guaranteed_pod("web", "2/1Gi"))
    assert await export.wait_after(empty.export.generation, 5)
    full = export.current()
    assert full is not None
    assert full.export.generation > empty.export.generation
    read = read_node_export(full.content)
    assert read.node_name == node.agent.node_name
    assert encode_node_export(read) == full.content
    [held] = read.profile.spec.allocations or ()
    agents = node.agent.event_recorder.state.node.held.cpu.assignments["web"]["main"]
    assert held.cpus == str(agents)
    # What is left is the same to both.
    next_pod = a_guaranteed_pod("next", "7/1Gi")
    assert not Node.from_profile(read.profile).admit(next_pod).admitted
    assert Node.from_profile(empty.export.profile).admit(next_pod).admitted


@with_served_agent()
async def test_a_client_that_waits_is_answered_when_the_agent_ends(node: HTTPSAgent) -> None:
    export = export_of(node)
    served = export.current()
    assert served is not None
    waiting = asyncio.create_task(export.wait_after(served.export.generation, 30))
    await asyncio.sleep(0)
    node.board.close()
    assert not await waiting
