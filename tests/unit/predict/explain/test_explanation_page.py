"""The page of `explain` is self-contained and shows the node's state."""

import re
from xml.etree import ElementTree as ET

from msgspec.structs import replace

from nodewright.model.kubernetes.node_profile import Device, NodeProfile
from nodewright.model.kubernetes.objects import Pod
from nodewright.predict.explain.explanation_page import explanation_page
from nodewright.predict.node import Node
from nodewright.predict.node_report.machine_svg import machine_svg
from nodewright.testing.nodes import STATIC_CPUS, STATIC_MEMORY, a_profile
from nodewright.testing.objects import a_guaranteed_pod, a_pod, container, pod

SVG = "{http://www.w3.org/2000/svg}"
ALIGNED = {**STATIC_CPUS, **STATIC_MEMORY, "topologyManagerPolicy": "restricted"}
GPUS = {"example.com/gpu": "g0@0 g1@1 any"}


def page_of(profile: NodeProfile, *pods: Pod) -> str:
    node, explanations = Node.from_profile(profile), []
    for candidate in pods:
        explanations.append(replace(node.explain(candidate), origin="Job <b>"))
        node = node.admit(candidate).node
    return explanation_page(explanations, node.state)


def cells(svg: str) -> dict[str, str]:
    """Class and title of each CPU and device, by its label."""
    descriptions = {}
    for group in ET.fromstring(svg).iter(f"{SVG}g"):  # noqa: S314 - our own drawing
        title, text = group.find(f"{SVG}title"), group.find(f"{SVG}text")
        if title is not None and text is not None:
            descriptions[text.text or ""] = f"{group.get('class')}; {title.text}"
    return descriptions


def test_each_cpu_and_device_is_drawn_with_its_holder() -> None:
    node = Node.from_profile(a_profile(devices=GPUS, **ALIGNED))
    node = node.admit(a_guaranteed_pod("web", "cpu=2 memory=1Gi example.com/gpu=1")).node
    drawn = cells(machine_svg(node.state))
    assert drawn["0"] == "cell reserved; CPU 0: reserved for the system"
    assert drawn["1"] == drawn["2"].replace("CPU 2", "CPU 1") == "cell p0; CPU 1: default/web (main)"
    assert drawn["7"] == "cell shared; CPU 7: shared pool"
    assert drawn["g0"] == "cell p0; g0: default/web (main)"
    assert drawn["g1"] == drawn["any"].replace("any", "g1") == "cell shared; g1: example.com/gpu, free"


def test_memory_shared_by_numa_nodes_names_the_group() -> None:
    node = Node.from_profile(a_profile(**{**ALIGNED, "topologyManagerPolicy": "best-effort"}))
    svg = machine_svg(node.admit(a_guaranteed_pod("web", "1/5Gi")).node.state)
    assert "NUMA 0: 4 GiB, 0 B free, used together with 1<" in svg


def test_unhealthy_devices_and_numa_nodes_without_cpus_are_drawn() -> None:
    profile = a_profile()
    nodes = profile.spec.machine_info.topology
    machine = replace(profile.spec.machine_info, topology=(nodes[0], replace(nodes[1], cores=())))
    unhealthy = {"example.com/gpu": (Device(id="g0", numa_nodes=(1,), healthy=False),)}
    svg = machine_svg(
        Node.from_profile(
            replace(profile, spec=replace(profile.spec, machine_info=machine, devices=unhealthy))
        ).state
    )
    assert cells(svg)["g0"] == "cell shared; g0: example.com/gpu, not healthy"
    assert ">NUMA nodes without CPUs<" in svg


def test_pod_level_cpus_are_drawn_with_their_pod() -> None:
    gate = {"PodLevelResourceManagers": True}
    node = Node.from_profile(a_profile(**ALIGNED, topologyManagerScope="pod", featureGates=gate))
    web = pod(container("app", "1/1Gi", "1/1Gi"), container("log"), name="web", uid="web", whole="3/2Gi")
    drawn = cells(machine_svg(node.admit(web).node.state))
    assert {drawn[cpu].split("; ")[0] for cpu in ("1", "2", "3")} == {"cell p0"}


def test_l3_caches_are_drawn_where_there_are_several() -> None:
    assert ">L3 3<" in machine_svg(Node.open("1s-2n-4c-smt2").state)


def test_a_page_has_no_scripts_and_no_external_resources() -> None:
    page = page_of(a_profile(**ALIGNED), a_guaranteed_pod("web", "2/1Gi"))
    addresses = set(re.findall(r"https?://[^\"' )]+", page))
    assert addresses == {"http://www.w3.org/2000/svg"}
    assert not re.search(r"<script|<link|<img|@import|url\(|\son\w+=", page)


def test_a_page_shows_verdicts_reasons_and_suggestions() -> None:
    pods = [
        a_guaranteed_pod("big", "5/1Gi"),
        a_guaranteed_pod("web", "4/1Gi"),
        a_pod("picky", nodeName="else"),
    ]
    page = page_of(a_profile(**ALIGNED), *pods)
    assert page.count("<article id=") == 3
    assert '<span class="badge yes">admitted</span>' in page
    assert '<span class="badge no">refused</span>' in page
    assert "<h3>What would let it in (each tried" in page
    assert "<h3>No single change among those tried would let it in.</h3>" in page
    assert "(Job &lt;b&gt;)" in page
    assert "<b>" not in page


def test_the_remedy_stands_before_the_reasons() -> None:
    page = page_of(a_profile(**ALIGNED), a_guaranteed_pod("big", "2/1Gi"), a_guaranteed_pod("web", "5/5Gi"))
    remedy = page.index('<li><a href="#pod-1">default/web</a>: ')
    article = page.index('<article id="pod-1">')
    reasons = [
        page.index(text, article)
        for text in ("<h3>What would let it in (", "<h3>Why</h3>", "<table", "NUMA nodes, ")
    ]
    assert [remedy, article, *reasons] == sorted([remedy, article, *reasons])
    assert remedy < page.index("<svg")


def test_numa_nodes_are_rows_of_a_table_and_their_lists_are_closed() -> None:
    page = page_of(a_profile(**ALIGNED), a_guaranteed_pod("big", "2/1Gi"), a_guaranteed_pod("web", "5/5Gi"))
    web = page[page.index('<article id="pod-1">') :]
    assert '<th scope="row">NUMA 0</th>' in web
    assert '<span class="no">✕ ' in web
    assert re.search(r"<details><summary><span class=\"\w+\">cpu: 5 requested", web)


def test_a_pod_without_remedy_and_a_page_without_refusals_say_so() -> None:
    page = page_of(a_profile(**ALIGNED), a_pod("picky", nodeName="else"))
    assert '<a href="#pod-0">default/picky</a>: No single change among those tried would let it in.' in page
    assert "Refused: " not in page_of(a_profile(**ALIGNED), a_guaranteed_pod("web", "2/1Gi"))
