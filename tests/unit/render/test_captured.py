"""What is said of captured nodes."""

import pytest

from nodewright.model.profile import NotKnown, Part
from nodewright.model.state_reasons import FormatTried, StateFile, StateFileDamaged
from nodewright.render.captured import broken_state, not_known_sentence, remark_sentence
from nodewright.world.captured import remarks

TORN = StateFileDamaged(
    file=StateFile.DEVICES, path="f", tried=(FormatTried(version=1, error="unexpected end of JSON input"),)
)


@pytest.mark.parametrize(
    ("remark", "said"),
    [
        (remarks.PodsEnded(names=("a/b", "c/d")), "left out, as they have ended: a/b, c/d"),
        (
            remarks.FieldsUnknown(names=("spec.warp",)),
            "passed over, as no field of pods that nodewright knows: spec.warp",
        ),
        (remarks.PodsElsewhere(count=2, node="n"), "left out: 2 pods not on n"),
        (remarks.PodsNotAdmitted(names=("a/b",)), "left out, as the kubelet has not let them in: a/b"),
        (
            remarks.PodsResized(names=("a/b",)),
            "taken as the kubelet has allocated them, which differs from their specs: a/b",
        ),
        (
            remarks.PodsUnexplained(uids=tuple("abcdefghij")),
            "no pod given has these uids, stand-ins hold what they hold (--pods): a, b, c, d, e, f, g, h and 2 more",
        ),
        (
            remarks.ManifestsPassedOver(names=("notes.txt",)),
            "left out, as the kubelet makes no pod of these manifests: notes.txt",
        ),
        (
            remarks.ContainersStale(names=("a/b, container c",)),
            "left out, as the kubelet takes back what containers hold that their pods do not have: a/b, container c",
        ),
        (
            remarks.DevicesPassedOver(names=("u, container c, r",)),
            "left out, as the kubelet cannot read the plugins' answers again and does not know of these devices: u, container c, r",
        ),
        (
            remarks.DevicesForgotten(reason=TORN),
            "f: damaged: unexpected end of JSON input; a kubelet that starts on it does not know which devices pods hold",
        ),
        (
            remarks.ConfigurationInferred(reserved=()),
            "kubelet configuration: none given, the kubelet's defaults are assumed with systemReserved: nothing",
        ),
        (
            remarks.TopologyDiffers(what="topologyManagerScope", told="pod", configured="container"),
            "topologyManagerScope: the NodeResourceTopology object says pod, the configuration container, which counts",
        ),
        (
            remarks.MachineDiffers(what="capacity of cpu", told="8", machine="4"),
            "capacity of cpu: the Node object says 8, machine and configuration come to 4",
        ),
        (remarks.ConfigurationWarning(text="unknown field"), "warning: unknown field"),
    ],
)
def test_each_remark_is_a_sentence(remark: remarks.Remark, said: str) -> None:
    assert remark_sentence(remark) == said


@pytest.mark.parametrize("part", Part)
def test_each_part_that_is_not_known_has_words(part: Part) -> None:
    said = not_known_sentence(NotKnown(part=part, names=("a",), because="nobody said"))
    assert said.startswith("not judged: ")
    assert said.endswith(" (a): nobody said")


def test_a_broken_file_is_told_twice() -> None:
    torn = StateFileDamaged(file=StateFile.CPU, path="f", tried=TORN.tried)
    (said,) = broken_state([torn])
    assert said.startswith(
        "f: damaged: unexpected end of JSON input: the kubelet does not start with it: could not"
    )
