import pytest

from nodewright.model.resource_names import is_extended, is_scalar

EXTENDED = """
    yes  example.com/gpu
    yes  gpu-vendor.com/gpu
    no   cpu
    no   hugepages-2Mi
    no   kubernetes.io/batch
    no   node.kubernetes.io/x
    no   requests.example.com/gpu
    no   Example.com/gpu
    no   example.com/a/b
"""


@pytest.mark.parametrize("line", EXTENDED.strip().splitlines())
def test_extended_resources_have_a_domain_that_is_not_kubernetes_own(line: str) -> None:
    verdict, resource = line.split()
    assert is_extended(resource) == (verdict == "yes")


def test_resources_that_no_node_counts_are_not_scalars() -> None:
    counted = ("hugepages-1Gi", "attachable-volumes-aws-ebs", "kubernetes.io/batch", "example.com/gpu")
    assert all(map(is_scalar, counted))
    assert not any(map(is_scalar, ("cpu", "memory", "gpu", "storage", "Example.com/gpu")))
