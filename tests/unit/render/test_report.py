"""The page: complete in itself, true to the node, readable by machines, too."""

import re
from xml.etree import ElementTree as ET

from msgspec.structs import replace

from nodewright.ask import Node
from nodewright.model.objects import Pod
from nodewright.model.profile import Device, NodeProfile
from nodewright.render.explain import Told
from nodewright.render.report import explanation_page
from nodewright.render.svg import machine_svg
from nodewright.testing.nodes import STATIC_CPUS, STATIC_MEMORY, a_profile
from nodewright.testing.objects import a_guaranteed_pod, a_pod, container, pod

SVG = "{http://www.w3.org/2000/svg}"
ALIGNED = {**STATIC_CPUS, **STATIC_MEMORY, "topologyManagerPolicy": "restricted"}
GPUS = {"example.com/gpu": "g0@0 g1@1 any"}


def page_of(profile: NodeProfile, *pods: Pod) -> str:
    node, told = Node.of(profile), []
    for one in pods:
        told.append(Told(explained=node.explain(one), origin="Job <b>"))
        node = node.admit(one).node
    return explanation_page(told, node.state)


def cells(svg: str) -> dict[str, str]:
    """What is said of each CPU and device, by its label."""
    found = {}
    for group in ET.fromstring(svg).iter(f"{SVG}g"):  # noqa: S314 - our own drawing
        title, text = group.find(f"{SVG}title"), group.find(f"{SVG}text")
        if title is not None and text is not None:
            found[text.text or ""] = f"{group.get('class')}; {title.text}"
    return found


def test_each_cpu_and_device_is_drawn_with_its_holder() -> None:
    node = Node.of(a_profile(devices=GPUS, **ALIGNED))
    node = node.admit(a_guaranteed_pod("web", "cpu=2 memory=1Gi example.com/gpu=1")).node
    found = cells(machine_svg(node.state))
    assert found["0"] == "cell reserved; CPU 0: reserved for the system"
    assert found["1"] == found["2"].replace("CPU 2", "CPU 1") == "cell p0; CPU 1: default/web (main)"
    assert found["7"] == "cell shared; CPU 7: shared by all without CPUs of their own"
    assert found["g0"] == "cell p0; g0: default/web (main)"
    assert found["g1"] == found["any"].replace("any", "g1") == "cell shared; g1: example.com/gpu, free"


def test_memory_that_is_used_together_is_told() -> None:
    node = Node.of(a_profile(**{**ALIGNED, "topologyManagerPolicy": "best-effort"}))
    svg = machine_svg(node.admit(a_guaranteed_pod("web", "1/5Gi")).node.state)
    assert "NUMA 0: 4 GiB, 0 B free, used together with 1<" in svg


def test_devices_that_are_ill_and_numa_nodes_without_cpus_are_drawn() -> None:
    profile = a_profile()
    nodes = profile.spec.machine_info.topology
    machine = replace(profile.spec.machine_info, topology=(nodes[0], replace(nodes[1], cores=())))
    ill = {"example.com/gpu": (Device(id="g0", numa_nodes=(1,), healthy=False),)}
    svg = machine_svg(
        Node.of(replace(profile, spec=replace(profile.spec, machine_info=machine, devices=ill))).state
    )
    assert cells(svg)["g0"] == "cell shared; g0: example.com/gpu, not healthy"
    assert ">NUMA nodes without CPUs<" in svg


def test_cpus_that_a_pod_has_as_a_whole_are_its_own() -> None:
    gate = {"PodLevelResourceManagers": True}
    node = Node.of(a_profile(**ALIGNED, topologyManagerScope="pod", featureGates=gate))
    whole = pod(container("app", "1/1Gi", "1/1Gi"), container("log"), name="web", uid="web", whole="3/2Gi")
    found = cells(machine_svg(node.admit(whole).node.state))
    assert {found[cpu].split("; ")[0] for cpu in ("1", "2", "3")} == {"cell p0"}


def test_l3_caches_are_drawn_where_there_are_several() -> None:
    assert ">L3 3<" in machine_svg(Node.open("1s-2n-4c-smt2").state)


def test_a_page_fetches_and_runs_nothing() -> None:
    found = page_of(a_profile(**ALIGNED), a_guaranteed_pod("web", "2/1Gi"))
    addresses = set(re.findall(r"https?://[^\"' )]+", found))
    assert addresses == {"http://www.w3.org/2000/svg"}
    assert not re.search(r"<script|<link|<img|@import|url\(|\son\w+=", found)


def test_a_page_tells_verdicts_reasons_and_what_would_help() -> None:
    pods = [
        a_guaranteed_pod("big", "5/1Gi"),
        a_guaranteed_pod("web", "4/1Gi"),
        a_pod("picky", nodeName="else"),
    ]
    found = page_of(a_profile(**ALIGNED), *pods)
    assert found.count("<article>") == 3
    assert '<span class="badge yes">admitted</span>' in found
    assert '<span class="badge no">refused</span>' in found
    assert "<h3>What would let it in</h3>" in found
    assert "<h3>No single change that was tried would let it in</h3>" in found
    assert "(Job &lt;b&gt;)" in found
    assert "<b>" not in found
