"""Which pods are critical."""

import pytest

from nodewright.engine.core.requests.qos_and_priority import (
    can_preempt,
    is_critical,
    is_mirror,
    is_node_critical,
    is_static,
)
from nodewright.model.kubernetes.objects import ObjectMeta, Pod, PodSpec


def of(priority: int | None = None, name: str = "", **annotations: str) -> Pod:
    marks = {f"kubernetes.io/config.{key}": value for key, value in annotations.items()}
    return Pod(
        metadata=ObjectMeta(annotations=marks), spec=PodSpec(priority=priority, priority_class_name=name)
    )


CRITICAL = {
    "static from a file": (of(source="file"), True),
    "static from a URL": (of(source="http"), True),
    "from the API server": (of(source="api"), False),
    "a mirror": (of(mirror="abc"), True),
    "of critical priority": (of(2_000_000_000), True),
    "just below": (of(1_999_999_999), False),
    "by name only": (of(None, "system-node-critical"), False),
}


@pytest.mark.parametrize("case", CRITICAL)
def test_a_pod_is_critical_by_its_source_or_its_priority(case: str) -> None:
    pod, expected = CRITICAL[case]
    assert is_critical(pod) is expected


def test_static_and_mirror_pods_are_recognized_by_annotations() -> None:
    assert is_static(of(source="file"))
    assert not is_static(of(source="api"))
    assert not is_static(of())
    assert is_mirror(of(mirror=""))
    assert not is_mirror(of())


def test_node_critical_needs_the_name_and_a_reason_to_be_critical() -> None:
    assert is_node_critical(of(2_000_001_000, "system-node-critical"))
    assert is_node_critical(of(None, "system-node-critical", source="file"))
    assert not is_node_critical(of(None, "system-node-critical"))
    assert not is_node_critical(of(2_000_001_000))


# preemptor, other -> may it?
PAIRS = [
    (of(2_000_000_000), of(0), True),
    (of(source="file"), of(), True),
    (of(2_000_001_000), of(2_000_000_000), True),
    (of(2_000_000_000), of(2_000_001_000), False),
    (of(5), of(4), True),
    (of(5), of(5), False),
    (of(5), of(), False),  # a priority that is not set is none
    (of(source="file"), of(2_000_000_000), False),
]


@pytest.mark.parametrize(("preemptor", "other", "expected"), PAIRS)
def test_preemption_depends_on_criticality_and_priority(
    preemptor: Pod, other: Pod, *, expected: bool
) -> None:
    assert can_preempt(preemptor, other) is expected
