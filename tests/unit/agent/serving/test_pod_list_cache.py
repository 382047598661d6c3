"""The list of pods as bytes: what has changed is written anew, whatever it stands in."""

import json
from pathlib import Path

from msgspec.structs import replace
from tests.support.agent_bench import async_test
from tests.support.fake_clock import settle
from tests.support.fake_plugins import GPU, GPUS, DeviceBench, FakePluginClient, a_gpu_pod

from nodewright.agent.observe.event_recorder import EventRecorder
from nodewright.agent.serving.agent_interface import AgentInterface
from nodewright.agent.serving.api_objects import NodeSystemInfo
from nodewright.agent.serving.kubelet_routes import PodListCache
from nodewright.testing.objects import a_pod


@async_test
async def test_device_health_is_in_the_pod_status() -> None:
    bench = DeviceBench({GPU: (line := FakePluginClient())})
    bench.loop.subscriber = board = EventRecorder(bench.loop.state, bench.clock)
    async with bench:
        await bench.register()
        await bench.add_pods(a_gpu_pod("train", 2), a_pod("web"))
        sheet = NodeSystemInfo(kubelet_version="v1.36", started_ns=0)
        kept = PodListCache(
            AgentInterface(
                event_recorder=board,
                observe=bench.loop.observe,
                runtime=bench.runtime,
                clock=bench.clock,
                system_info=sheet,
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


def told_health(kept: PodListCache) -> dict[str, dict[str, str]]:
    """By pod the health of each device that its only container holds."""
    result = {}
    for pod in json.loads(kept.pod_list())["items"]:
        for status in pod["status"]["containerStatuses"]:
            for item in status.get("allocatedResourcesStatus", ()):
                assert item["name"] == GPU
                result[pod["metadata"]["name"]] = {
                    each["resourceID"]: each["health"] for each in item["resources"]
                }
    return result
