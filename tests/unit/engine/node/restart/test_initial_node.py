"""What keeps a kubelet from starting, in its own words."""

from typing import Any

import pytest

from nodewright.model.errors import InputError
from nodewright.model.kubernetes.node_profile import NodeProfile, NodeProfileSpec
from nodewright.predict.node import Node
from nodewright.testing.machines import regular_machine

# NUMA nodes of the machine, configuration; the kubelet's last words.
NO_STARTS: list[tuple[int, dict[str, Any], str]] = [
    (9, {"topologyManagerPolicy": "restricted"}, "unsupported on machines with more than 8 NUMA Nodes"),
    (1, {"topologyManagerPolicy": "restricted", "topologyManagerPolicyOptions": {"a": "b"}},
     'unknown Topology Manager Policy option: "a"'),
    (1, {"cpuManagerPolicy": "odd"}, 'unknown policy: "odd"'),
    (1, {"cpuManagerPolicy": "static"},
     "[cpumanager] unable to determine reserved CPU resources for static policy"),
    (1, {"memoryManagerPolicy": "odd"}, 'unknown policy: "odd"'),
    (1, {"memoryManagerPolicy": "Static"},
     'the total amount "0" of type "memory" is not equal to the value "100Mi" determined by Node Allocatable feature'),
    (1, {"systemReserved": {"cpu": "5"}},
     ('invalid Node Allocatable configuration. Resource "cpu" has a reservation of {{5 0} {<nil>}  DecimalSI} but '
      "capacity of {{4000 -3} {<nil>}  DecimalSI}. Expected capacity >= reservation.")),
]  # fmt: skip


@pytest.mark.parametrize(("numa", "kubelet", "words"), NO_STARTS)
def test_a_configuration_on_which_the_kubelet_does_not_start_gives_no_node(
    numa: int, kubelet: dict[str, Any], words: str
) -> None:
    spec = NodeProfileSpec(machine_info=regular_machine(numa), kubelet_configuration=kubelet)
    with pytest.raises(InputError) as refused:
        Node.from_profile(NodeProfile(spec=spec))
    [fault] = refused.value.faults
    assert (fault.path, fault.rule) == ("spec.kubeletConfiguration", f"the kubelet does not start: {words}")
