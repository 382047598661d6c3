"""Pictures of the dashboard in docs/shots: `python -m tools dashboard-shots`, or `make shots`. It takes Chromium."""

import shutil
import tempfile
import time
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path

from msgspec.structs import replace
from tests.support.chromium import COMMAND, BrowserPage, Chromium
from tests.support.dashboards import DashboardAgent, ServedView, admission_plan

from nodewright.agent.serving.dashboard.plan_view import PlanView
from nodewright.documents.profiles.node_profiles import find_profile
from nodewright.model.kubernetes.node_profile import Device, NodeProfile
from nodewright.model.kubernetes.objects import Pod
from nodewright.predict.node import Node
from nodewright.predict.python_sources import load_pods
from nodewright.testing.objects import a_guaranteed_pod, a_pod
from tools.source import ROOT

FOLDER = ROOT / "docs" / "shots"
LIVE = "document.getElementById('live').dataset.state === 'on'"
WATCHED_S = 14


def busy_node() -> NodeProfile:
    """A machine with 256 CPUs whose managers pin."""
    profile = find_profile("epyc-7742-2s-nps4")
    settings = {
        "cpuManagerPolicy": "static",
        "reservedSystemCPUs": "0,128",
        "topologyManagerPolicy": "best-effort",
        "memoryManagerPolicy": "Static",
        "systemReserved": {"memory": "1Gi"},
        "reservedMemory": [{"numaNode": 0, "limits": {"memory": "3Gi"}}],
        "evictionHard": {"memory.available": "2Gi", "nodefs.available": "10%"},
    }
    gpus = tuple(Device(id=f"gpu-{number}", numa_nodes=(number,)) for number in range(8))
    spec = replace(profile.spec, kubelet_configuration=settings, devices={"nvidia.com/gpu": gpus})
    return replace(profile, spec=spec)


def pods() -> list[Pod]:
    """What runs there: some of everything, the same each time."""
    names = (
        "cart",
        "search",
        "checkout",
        "redis",
        "kafka",
        "train",
        "infer",
        "ingest",
        "report",
        "edge",
        "auth",
    )
    result = []
    for number in range(44):
        name, namespace = f"{names[number % 11]}-{number // 11}", ("shop", "ml", "data")[number % 3]
        metadata = {"namespace": namespace, "uid": f"uid-{number}"}
        if number % 4 == 3:
            result.append(a_pod(name, "500m/1Gi", metadata=metadata))
            continue
        document = {"cpu": str((1, 2, 4, 8)[number * 7 % 4]), "memory": f"{(2, 4, 16)[number % 3]}Gi"}
        if number % 8 == 5:
            document["nvidia.com/gpu"] = "1"
        result.append(a_pod(name, document, document, metadata=metadata))
    result.append(a_guaranteed_pod("train-xl", "200/64Gi", priority=100))
    return result


async def _fill(stand: DashboardAgent) -> None:
    stand.bench.memory_readings.set_readings(memory="96Gi/512Gi", nodefs="310Gi/500Gi", imagefs="")
    await stand.bench.add_pods(*pods())


def agent_pictures(browser: Chromium) -> None:
    """An agent at work: the whole page in both themes, one pod opened, and a telephone."""
    with ServedView(
        lambda: DashboardAgent(busy_node()), lambda it: it.view, lambda it: it.board.close()
    ) as served:
        served.run_in_server(_fill(served.made))
        page = browser.page(served.link)
        page.wait(LIVE)
        for second in range(WATCHED_S):
            left = 96 - (second * second) / 2
            served.made.bench.memory_readings.set_readings(
                memory=f"{int(left)}Gi/512Gi", nodefs="310Gi/500Gi", imagefs=""
            )
            time.sleep(1)
        _keep(page, "dashboard")
        page.evaluate(
            "[...document.querySelectorAll('.pod')].find(pod => pod.textContent.includes('train-xl')).click()"
        )
        page.wait("document.querySelector('.why')?.getAttribute('aria-busy') === 'false'")
        _keep(page, "dashboard-why")
        small = browser.page(page.evaluate("location.href"), width=360, height=740, dark=True)
        small.wait(LIVE)
        _keep(small, "dashboard-small")


@asynccontextmanager
async def _plan() -> AsyncIterator[PlanView]:
    node = Node.open(str(ROOT / "examples/numa/gpu-nic-node.yaml"))
    plan = admission_plan(node, load_pods(str(ROOT / "examples/numa/gpu-nic-pods.yaml")))
    yield PlanView(plan, lambda: plan, lambda: 0)


def plan_pictures(browser: Chromium) -> None:
    """A plan, dark, with the fix of what was refused."""
    with ServedView(_plan, lambda view: view, PlanView.close) as served:
        page = browser.page(served.link, width=1280, height=680, dark=True)
        page.wait(LIVE)
        page.evaluate("document.querySelector('.pod.bad').click()")
        page.wait("document.querySelector('.why')?.getAttribute('aria-busy') === 'false'")
        _keep(page, "dashboard-plan")


def _keep(page: BrowserPage, name: str) -> None:
    page.evaluate("document.fonts.ready.then(() => 1)")
    time.sleep(0.5)
    assert not page.complaints, page.complaints
    (FOLDER / f"{name}.png").write_bytes(page.screenshot())


def main() -> bool:
    """Take all pictures; False: there is no Chromium to take them with."""
    if shutil.which(COMMAND) is None:
        return False
    with tempfile.TemporaryDirectory() as folder, Chromium(Path(folder)) as browser:
        plan_pictures(browser)
        agent_pictures(browser)
    return True
