"""Warnings about captured nodes."""

import pytest

from nodewright.documents.profiles.capture import warnings
from nodewright.documents.profiles.capture.warnings import (
    broken_state_text,
    not_judged_sentence,
)
from nodewright.model.kubernetes.node_profile import NodePart, UnknownNodePart
from nodewright.model.reasons.kubelet_start import FormatTried, StateFile, StateFileDamaged

TORN = StateFileDamaged(
    file=StateFile.DEVICES, path="f", tried=(FormatTried(version=1, error="unexpected end of JSON input"),)
)


@pytest.mark.parametrize(
    ("remark", "said"),
    [
        (warnings.PodsEnded(names=("a/b", "c/d")), "left out, because they have terminated: a/b, c/d"),
        (
            warnings.UnknownPodFields(names=("spec.warp",)),
            "ignored, because nodewright does not know these pod fields: spec.warp",
        ),
        (warnings.PodsOfOtherNodes(count=2, node="n"), "left out: 2 pods not on n"),
        (
            warnings.PodsNotAdmitted(names=("a/b",)),
            "left out, because the kubelet has not admitted them: a/b",
        ),
        (
            warnings.PodsBeingResized(names=("a/b",)),
            "captured with the resources that the kubelet allocated, not those of their specs: a/b",
        ),
        (
            warnings.PodsUndescribed(names=tuple("abcdefghij")),
            "no given pod has these uids; placeholders hold their resources (name the pods with --pods): a, b, c, d, e, f, g, h and 2 more",
        ),
        (
            warnings.ManifestsIgnored(names=("notes.txt",)),
            "left out, because the kubelet creates no pod from these manifests: notes.txt",
        ),
        (
            warnings.ContainersStale(names=("a/b, container c",)),
            "left out, because the kubelet releases allocations of containers that are not in their pods: a/b, container c",
        ),
        (
            warnings.DeviceEntriesUnreadable(names=("u, container c, r",)),
            "left out, because the kubelet cannot decode the plugins' responses and does not know these devices: u, container c, r",
        ),
        (
            warnings.DeviceCheckpointCorrupt(reason=TORN),
            "f: damaged: unexpected end of JSON input; a kubelet that starts with it does not know which devices pods hold",
        ),
        (
            warnings.ConfigurationInferred(reserved=()),
            "kubelet configuration: none given; the kubelet's defaults are assumed, with systemReserved: nothing",
        ),
        (
            warnings.TopologyDiffers(setting="topologyManagerScope", reported="pod", configured="container"),
            "topologyManagerScope: the NodeResourceTopology object reports pod; the configuration's container is used",
        ),
        (
            warnings.MachineDiffers(resource="capacity of cpu", reported="8", machine="4"),
            "capacity of cpu: the Node object reports 8; machine and configuration give 4",
        ),
        (warnings.ConfigurationWarning(logged="unknown field"), "warning: unknown field"),
    ],
)
def test_each_warning_is_a_sentence(remark: warnings.CaptureWarning, said: str) -> None:
    assert remark.sentence() == said


@pytest.mark.parametrize("part", NodePart)
def test_each_unknown_part_has_a_sentence(part: NodePart) -> None:
    text = not_judged_sentence(UnknownNodePart(part=part, names=("a",), because="nobody said"))
    assert text.startswith("not judged: ")
    assert text.endswith(" (a): nobody said")


def test_a_broken_file_has_our_sentence_and_the_kubelets_message() -> None:
    torn = StateFileDamaged(file=StateFile.CPU, path="f", tried=TORN.tried)
    (text,) = broken_state_text([torn])
    assert text.startswith(
        "f: damaged: unexpected end of JSON input: the kubelet does not start with it: could not"
    )
