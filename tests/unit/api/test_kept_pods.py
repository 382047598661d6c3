"""The list of pods as bytes: what has changed is written anew, whatever it stands in."""

import json
from pathlib import Path

from msgspec.structs import replace

from nodewright.agent.board import Board
from nodewright.api.agent import Agent
from nodewright.api.kept_pods import KeptPods
from nodewright.render.running import NodeSheet
from nodewright.testing.agents import running
from nodewright.testing.objects import a_pod
from nodewright.testing.plugins import GPU, GPUS, DeviceBench, FakeLine, with_gpus
from nodewright.testing.runtime import settle


@running
async def test_how_devices_are_stands_in_the_status_of_who_holds_them() -> None:
    bench = DeviceBench({GPU: (line := FakeLine())})
    bench.loop.ears = board = Board(bench.loop.mind, bench.clock)
    async with bench:
        await bench.register()
        await bench.want(with_gpus("train", 2), a_pod("web"))
        sheet = NodeSheet(version="v1.36", started_ns=0)
        kept = KeptPods(
            Agent(
                board=board,
                see=bench.loop.see,
                runtime=bench.runtime,
                clock=bench.clock,
                sheet=sheet,
                log_root=Path("/logs"),
            )
        )
        assert told_health(kept) == {"train": {"gpu-0": "Healthy", "gpu-1": "Healthy"}}
        line.queue.put_nowait((GPUS[0], replace(GPUS[1], healthy=False), *GPUS[2:]))
        await settle()
        await bench.clock.advance(1)
        assert told_health(kept) == {"train": {"gpu-0": "Healthy", "gpu-1": "Unhealthy"}}
        line.queue.put_nowait(GPUS[1:])
        await settle()
        await bench.clock.advance(1)
        # Of one that its plugin does not list any more nobody says that it is ill.
        assert told_health(kept) == {"train": {"gpu-0": "Healthy", "gpu-1": "Healthy"}}
        await bench.plugins.close()


def told_health(kept: KeptPods) -> dict[str, dict[str, str]]:
    """By pod the health of each device that its only container holds."""
    found = {}
    for pod in json.loads(kept.now())["items"]:
        for status in pod["status"]["containerStatuses"]:
            for one in status.get("allocatedResourcesStatus", ()):
                assert one["name"] == GPU
                found[pod["metadata"]["name"]] = {
                    each["resourceID"]: each["health"] for each in one["resources"]
                }
    return found
