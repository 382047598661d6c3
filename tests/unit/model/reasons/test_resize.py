"""The API server's and the kubelet's texts about resizes, and our sentences."""

import pytest

from nodewright.model.reasons.reason import kubelet_text, sentence
from nodewright.model.reasons.resize import (
    Excess,
    PodLevelResizeDisabled,
    ResizeBeyondNode,
    ResizeFeaturesMissing,
    ResizeForbidden,
    ResizeInvalid,
    ResizeOfField,
    ResizeOnOtherSystem,
    ResizeReason,
    StaticPolicyInTheWay,
    SwapInTheWay,
    resize_api_error,
)

STATIC = ResizeOfField(path="[]", error="Forbidden", rule="static pods cannot be resized")
CLASS = ResizeOfField(path="spec", error="Invalid value", value="Burstable", rule="may not change")
MISSING = ResizeFeaturesMissing(node="n1", features=("A", "B"))


@pytest.mark.parametrize(
    ("reason", "text", "words"),
    [
        (
            SwapInTheWay(container="app"),
            "In-place resize of containers with swap is not supported.",
            "container app may swap",
        ),
        (
            PodLevelResizeDisabled(),
            "InPlacePodLevelResourcesVerticalScaling is disabled",
            "feature gate InPlacePodLevelResourcesVerticalScaling is off",
        ),
        (
            StaticPolicyInTheWay(resource="memory", containers=("app", "db")),
            'Resize is infeasible for Guaranteed Pods alongside Memory Manager policy "Static"',
            "pins memory: what container app, db requests",
        ),
    ],
)
def test_infeasible_resizes_have_the_kubelets_message_and_a_sentence(
    reason: ResizeReason, text: str, words: str
) -> None:
    assert kubelet_text(reason) == ("Infeasible", text)
    assert words in sentence(reason)


@pytest.mark.parametrize(
    ("reason", "kind", "text", "words"),
    [
        (
            ResizeInvalid(faults=(STATIC,)),
            "Invalid",
            'Pod "web" is invalid: []: Forbidden: static pods cannot be resized',
            "static pods cannot be resized",
        ),
        (
            ResizeInvalid(faults=(CLASS, STATIC)),
            "Invalid",
            (
                'Pod "web" is invalid: [spec: Invalid value: "Burstable": may not change, '
                "[]: Forbidden: static pods cannot be resized]"
            ),
            "spec: may not change; static pods cannot be resized",
        ),
        (
            ResizeBeyondNode(
                excesses=(
                    Excess(resource="cpu", requested=5000, allocatable=4000),
                    Excess(resource="memory", requested=2 << 30, allocatable=1 << 30),
                )
            ),
            "Forbidden",
            (
                'pods "web" is forbidden: node didn\'t have enough allocatable resources: '
                "cpu, requested: 5000, allocatable: 4000; memory, requested: 2147483648, allocatable: 1073741824"
            ),
            "cpu: 5 requested, the whole node has 4 for pods; memory: 2Gi requested",
        ),
        (
            ResizeOnOtherSystem(node="n1", os="windows"),
            "Forbidden",
            'pods "web" is forbidden: pod resize is only supported on linux nodes, node "n1" is "windows"',
            "node n1 runs windows",
        ),
        (
            MISSING,
            "Forbidden",
            'pods "web" is forbidden: pod update requires features A, B which are not available on node "n1"',
            "node n1 does not declare A, B",
        ),
    ],
)
def test_forbidden_resizes_have_the_api_servers_error_and_a_sentence(
    reason: ResizeForbidden, kind: str, text: str, words: str
) -> None:
    assert kubelet_text(reason).reason == kind
    assert resize_api_error(reason, "web") == text
    assert words in sentence(reason)
