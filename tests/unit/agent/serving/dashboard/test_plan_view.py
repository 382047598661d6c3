"""A plan as a dashboard shows it: answers, reasons, fixes, files that change."""

import asyncio

from tests.support.agent_bench import async_test
from tests.support.dashboards import admission_plan

from nodewright.agent.serving.dashboard.plan_view import AdmissionPlan, PlanView
from nodewright.model.errors import Fault, InputError
from nodewright.model.kubernetes.objects import Pod
from nodewright.predict.node import Node
from nodewright.testing.nodes import STATIC_CPUS, a_profile
from nodewright.testing.objects import a_guaranteed_pod, a_pod, a_static_pod


def a_plan(*pods: Pod, there: tuple[Pod, ...] = ()) -> AdmissionPlan:
    return admission_plan(Node.from_profile(a_profile(pods=there, **STATIC_CPUS)), pods)


class Files:
    """Files that somebody edits."""

    def __init__(self, plan: AdmissionPlan) -> None:
        self.plan, self.number, self.reads, self.fault = plan, 0, 0, ""

    def read(self) -> AdmissionPlan:
        """The plan by the files."""
        self.reads += 1
        if self.fault:
            raise InputError([Fault(path="spec", rule=self.fault, source="pods.yaml")])
        return self.plan

    def stamp(self) -> object:
        """Something new after each edit."""
        return self.number


def a_view(files: Files) -> PlanView:
    return PlanView(files.plan, files.read, files.stamp)


@async_test
async def test_planned_pods_have_verdicts_and_placements() -> None:
    plan = a_plan(a_guaranteed_pod("web", "2/1Gi"), a_pod("big", "cpu=64"))
    sections = await a_view(Files(plan)).sections()
    web, big = sections["pods"]
    assert (web["word"], web["tone"], web["letters"]) == ("admitted", "good", "A")
    assert web["placement"]["containers"][0]["cpus"] == "1-2"
    assert (big["word"], big["tone"], big["reason"], big["mark"]) == ("refused", "bad", "OutOfcpu", None)
    assert sections["about"]["answers"] == {"admitted": 1, "refused": 1}
    assert sections["holdings"]["cpus"] == [{"pod": "web", "container": "main", "cpus": "1-2"}]


@async_test
async def test_a_refusal_has_its_reasons_and_its_fixes_on_demand() -> None:
    view = a_view(Files(a_plan(a_pod("big", "cpu=64"))))
    placement_reason = await view.placement_reason("big")
    assert placement_reason is not None
    assert placement_reason["now"]["reason"] == "OutOfcpu"
    assert "container main: 7 CPUs instead of 64" in [fix["text"] for fix in placement_reason["now"]["fixes"]]
    assert placement_reason is await view.placement_reason("big"), "an answer is kept"
    assert await view.placement_reason("nobody") is None


@async_test
async def test_a_pod_is_explained_on_the_node_that_it_found() -> None:
    """The second one takes all that is left; that is no reason against the first."""
    view = a_view(Files(a_plan(a_guaranteed_pod("first", "4/1Gi"), a_guaranteed_pod("second", "3/1Gi"))))
    placement_reason = await view.placement_reason("first")
    assert placement_reason is not None
    assert placement_reason["now"]["verdict"] == "admitted"
    assert not placement_reason["asNewArrival"]


@async_test
async def test_pods_of_the_node_are_explained_as_new_arrivals() -> None:
    view = a_view(Files(a_plan(there=(a_guaranteed_pod("old", "2/1Gi"),))))
    sections = await view.sections()
    assert [(pod["name"], pod["word"]) for pod in sections["pods"]] == [("old", "on the node")]
    placement_reason = await view.placement_reason("old")
    assert placement_reason is not None
    assert placement_reason["asNewArrival"]
    assert placement_reason["now"]["verdict"] == "admitted"


@async_test
async def test_preempted_pods_name_the_preemptor() -> None:
    plan = a_plan(a_static_pod("critical", "cpu=2"), there=(a_pod("batch", "cpu=7"),))
    critical, batch = (await a_view(Files(plan)).sections())["pods"]
    assert critical["preempts"] == ["default/batch"]
    assert (batch["preemptedBy"], batch["word"], batch["asked"]) == ("default/critical", "preempted", False)


@async_test
async def test_files_that_change_are_read_again_once() -> None:
    files = Files(a_plan(a_pod("web", "cpu=1")))
    view = a_view(files)
    await asyncio.gather(view.sections(), view.sections())
    assert files.reads == 0
    files.plan, files.number = a_plan(a_pod("web", "cpu=1"), a_pod("more", "cpu=1")), 1
    both = await asyncio.gather(view.sections(), view.sections())
    assert [len(item["pods"]) for item in both] == [2, 2]
    assert files.reads == 1


@async_test
async def test_the_previous_plan_stays_while_files_have_faults() -> None:
    files = Files(a_plan(a_pod("web", "cpu=1")))
    view = a_view(files)
    files.fault, files.number = "is broken", 1
    sections = await view.sections()
    assert [pod["name"] for pod in sections["pods"]] == ["web"]
    assert sections["about"]["faults"] == ["pods.yaml: spec: is broken"]
    files.fault, files.number = "", 2
    assert (await view.sections())["about"]["faults"] == []
