"""Kinds of resources by name, and readable amounts."""

import pytest

from nodewright.model.kubernetes.resource_names import (
    amount_text,
    distinguishable_amounts,
    is_extended,
    is_huge_page,
    is_scalar,
    is_supported_pod_level,
    readable_amount,
)

# name -> extended, scalar, pod level
NAMES = """
    cpu                          no   no   yes
    memory                       no   no   yes
    ephemeral-storage            no   no   no
    storage                      no   no   no
    hugepages-2Mi                no   yes  yes
    attachable-volumes-aws-ebs   no   yes  no
    nvidia.com/gpu               yes  yes  no
    kubernetes.io/batch-cpu      no   yes  no
    example.kubernetes.io/thing  no   yes  no
    requests.nvidia.com/gpu      no   no   no
    Example.com/gpu              no   no   no
    example.com/-gpu             no   no   no
    a/b/c                        no   no   no
    node.kubernetes.io/x         no   yes  no
    gpu-vendor.com/gpu           yes  yes  no
    gpu                          no   no   no
    example.com/a/b              no   no   no
    /gpu                         no   no   no
"""


@pytest.mark.parametrize("line", NAMES.strip().splitlines())
def test_names_are_of_these_kinds(line: str) -> None:
    name, *expected = line.split()
    assert [is_extended(name), is_scalar(name), is_supported_pod_level(name)] == [
        word == "yes" for word in expected
    ]


def test_huge_pages_are_recognized_by_their_prefix() -> None:
    assert is_huge_page("hugepages-1Gi")
    assert not is_huge_page("nvidia.com/hugepages-1Gi")


TEXTS = """
    cpu                 1500         1.5
    cpu                 250          0.25
    cpu                 4000         4
    cpu                 1            0.001
    cpu                 -500         -0.5
    memory              0            0
    memory              1023         1023
    memory              1024         1Ki
    memory              1610612736   1.5Gi
    memory              100000000    95.37Mi
    memory              -1073741824  -1Gi
    ephemeral-storage   53687091200  50Gi
    hugepages-2Mi       67108864     64Mi
    example.com/gpu     2048         2048
    pods                110          110
"""


@pytest.mark.parametrize("line", TEXTS.strip().splitlines())
def test_amounts_are_in_readable_units(line: str) -> None:
    resource, amount, text = line.split()
    assert readable_amount(resource, int(amount)) == text


def test_different_amounts_have_different_texts() -> None:
    assert distinguishable_amounts("memory", 1 << 30, 1 << 29) == ["1Gi", "512Mi"]
    assert distinguishable_amounts("memory", (1 << 30) + 1, 1 << 30, 1 << 30) == [
        "1.000000001Gi",
        "1Gi",
        "1Gi",
    ]


def test_an_exact_text_keeps_every_unit_of_the_amount() -> None:
    texts = [amount_text("memory", amount) for amount in (0, 1, 1 << 60, (1 << 30) + 1, 3 << 29)]
    assert texts == ["0", "1", "1Ei", "1073741825", "1536Mi"]
    assert [amount_text("cpu", amount) for amount in (1500, 2000)] == ["1500m", "2"]
    assert amount_text("pods", 1024) == "1024"
