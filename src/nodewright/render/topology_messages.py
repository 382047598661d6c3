"""The kubelet's own texts for what the topology manager finds."""

from typing import assert_never

from nodewright.model import topology_reasons as topology
from nodewright.values.golang import quoted

TOPOLOGY_AFFINITY_ERROR = "TopologyAffinityError"


def topology_message(reason: topology.TopologyReason) -> tuple[str, str]:
    """The kubelet's reason and message for a pod; without a reason: what it says when it starts, or nothing.

    Follows: v1.36, topologymanager/topology_manager.go, TopologyAffinityError, PodLevelTopologyAffinityError.
    """
    match reason:
        case topology.HintsMerged(hint=hint):
            return "", f"merged hint: {hint}"
        case topology.DistanceMissing(other=other, listed=listed):
            return "KubeletCrashes", f"index out of range [{other}] with length {listed}"
        case topology.PodUnfit(policy=policy, said=said):
            return TOPOLOGY_AFFINITY_ERROR, f"topology policy {policy}: {said}"
        case topology.NoCommonNUMA(pod_level=False):
            return TOPOLOGY_AFFINITY_ERROR, "Resources cannot be allocated with Topology locality"
        case topology.NoCommonNUMA(scope="pod"):
            problem = "failed admission under pod-scope topology manager"
        case topology.NoCommonNUMA():
            problem = "failed admission with a container-level topology manager"
        case _:
            return "", start_error(reason)
    return TOPOLOGY_AFFINITY_ERROR, f"Pod Scope pod with pod-level resources {problem}"


def start_error(reason: topology.TopologyFault) -> str:
    """The text of the error with which the topology manager does not start, to the byte.

    Follows: v1.36, topologymanager/topology_manager.go, NewManager; policy_options.go; numa_info.go.
    """
    match reason:
        case topology.TopologyOptionUnknown(option=option):
            return f"unknown Topology Manager Policy option: {quoted(option)}"
        case topology.TopologyOptionMalformed():
            return _malformed(reason)
        case topology.TopologyLimitTooLow(option=option, least=least):
            return f"the minimum value of {quoted(option)} should not be less than {least}"
        case topology.NUMADistancesUnknown():
            return "cannot discover NUMA topology: error getting NUMA distances from cadvisor"
        case topology.TooManyNUMANodes(limit=limit):
            return f"unsupported on machines with more than {limit} NUMA Nodes"
        case topology.TopologyPolicyUnknown(policy=policy):
            return f'unknown policy: "{policy}"'
        case topology.TopologyScopeUnknown(scope=scope):
            return f'unknown scope: "{scope}"'
        case _:
            assert_never(reason)


def _malformed(reason: topology.TopologyOptionMalformed) -> str:
    option, value = quoted(reason.option), quoted(reason.value)
    match reason.fault:
        case "no truth value":
            return f"bad value for option {option}: strconv.ParseBool: parsing {value}: invalid syntax"
        case "no number":
            problem = "invalid syntax"
        case "beyond 64 bits":
            problem = "value out of range"
        case _:
            assert_never(reason.fault)
    return f"unable to convert policy option to integer {option}: strconv.Atoi: parsing {value}: {problem}"
