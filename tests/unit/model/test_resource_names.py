"""What a resource's name says."""

import pytest

from nodewright.model.resource_names import is_extended, is_huge_page, is_pod_level, is_scalar

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
    assert [is_extended(name), is_scalar(name), is_pod_level(name)] == [word == "yes" for word in expected]


def test_huge_pages_are_told_by_their_prefix() -> None:
    assert is_huge_page("hugepages-1Gi")
    assert not is_huge_page("nvidia.com/hugepages-1Gi")
