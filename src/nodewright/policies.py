"""Everything needed to write a custom policy that replaces one of the kubelet's.

>>> from nodewright.policies import MergeRequest, MergeResult, topology_policy
>>> @topology_policy("at-most-two")
... def at_most_two(request: MergeRequest) -> MergeResult:
...     "Admits hints of at most two NUMA nodes."
...     best = request.as_kubelet("best-effort")
...     return MergeResult(best.hint, admit=len(best.hint.numa or ()) <= 2)
"""

from nodewright.engine.core.cpu.cpu_policy import (
    CPUPicker,
    PickRefusal,
    PickRequest,
    cpu_picker,
    whole_caches,
)
from nodewright.engine.core.cpu.cpu_topology import CPUTopology
from nodewright.engine.core.eviction.eviction_policy import EvictionPolicy, Headroom, eviction_policy
from nodewright.engine.core.lending.predictors import Predictor, PredictorScope, UsageSamples, predictor
from nodewright.engine.core.topology.custom import (
    MergeRequest,
    MergeResult,
    PolicyChoice,
    Rejection,
    TopologyPolicy,
    annotated_policy,
    topology_choice,
    topology_policy,
)
from nodewright.fleet.simulation.scores import CandidateNode, NodeScorer, node_scorer
from nodewright.model.kubernetes.objects import Pod
from nodewright.model.values.custom_policy import CustomPolicy, CustomPolicyError
from nodewright.model.values.idset import CPUSet, NUMASet
from nodewright.model.values.topology_hints import Hint, HintList

__all__ = [
    "CPUPicker",
    "CPUSet",
    "CPUTopology",
    "CandidateNode",
    "CustomPolicy",
    "CustomPolicyError",
    "EvictionPolicy",
    "Headroom",
    "Hint",
    "HintList",
    "MergeRequest",
    "MergeResult",
    "NUMASet",
    "NodeScorer",
    "PickRefusal",
    "PickRequest",
    "Pod",
    "PolicyChoice",
    "Predictor",
    "PredictorScope",
    "Rejection",
    "TopologyPolicy",
    "UsageSamples",
    "annotated_policy",
    "cpu_picker",
    "eviction_policy",
    "node_scorer",
    "predictor",
    "topology_choice",
    "topology_policy",
    "whole_caches",
]
