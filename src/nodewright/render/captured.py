"""What is worth saying of a captured node, in sentences."""

from collections.abc import Sequence
from typing import assert_never

from nodewright.model.profile import NotKnown, Part
from nodewright.model.state_reasons import StateFileReason
from nodewright.render.state_messages import state_message, state_sentence
from nodewright.world.captured.remarks import (
    ConfigurationInferred,
    ConfigurationWarning,
    ContainersStale,
    DevicesForgotten,
    DevicesPassedOver,
    FieldsUnknown,
    MachineDiffers,
    ManifestsPassedOver,
    PodsElsewhere,
    PodsEnded,
    PodsNotAdmitted,
    PodsResized,
    PodsUnexplained,
    Remark,
    TopologyDiffers,
)

_MOST_NAMES = 8


def remark_sentence(remark: Remark) -> str:
    """What was left out or assumed, and why."""
    match remark:
        case PodsEnded(names=names):
            return f"left out, as they have ended: {_some(names)}"
        case FieldsUnknown(names=names):
            return f"passed over, as no field of pods that nodewright knows: {_some(names)}"
        case PodsElsewhere(count=count, node=node):
            return f"left out: {count} pod{'' if count == 1 else 's'} not on {node}"
        case PodsNotAdmitted(names=names):
            return f"left out, as the kubelet has not let them in: {_some(names)}"
        case PodsResized(names=names):
            return f"taken as the kubelet has allocated them, which differs from their specs: {_some(names)}"
        case PodsUnexplained(uids=uids):
            return f"no pod given has these uids, stand-ins hold what they hold (--pods): {_some(uids)}"
        case ManifestsPassedOver(names=names):
            return f"left out, as the kubelet makes no pod of these manifests: {_some(names)}"
        case ContainersStale(names=names):
            return f"left out, as the kubelet takes back what containers hold that their pods do not have: {_some(names)}"
        case DevicesPassedOver(names=names):
            return (
                "left out, as the kubelet cannot read the plugins' answers again and does not know of these devices: "
                + _some(names)
            )
        case DevicesForgotten(reason=reason):
            return (
                f"{state_sentence(reason)}; a kubelet that starts on it does not know which devices pods hold"
            )
        case ConfigurationInferred(reserved=reserved):
            amounts = ", ".join(f"{name} {amount}" for name, amount in reserved) or "nothing"
            return f"kubelet configuration: none given, the kubelet's defaults are assumed with systemReserved: {amounts}"
        case TopologyDiffers(what=what, told=told, configured=configured):
            return f"{what}: the NodeResourceTopology object says {told}, the configuration {configured}, which counts"
        case MachineDiffers(what=what, told=told, machine=machine):
            return f"{what}: the Node object says {told}, machine and configuration come to {machine}"
        case ConfigurationWarning(text=text):
            return f"warning: {text}"
        case _:
            assert_never(remark)


def not_known_sentence(one: NotKnown) -> str:
    """What is only assumed, and why."""
    names = f" ({_some(one.names)})" if one.names else ""
    return f"not judged: {_PARTS[one.part]}{names}: {one.because}"


_PARTS: dict[str, str] = {
    Part.CONFIGURATION: "what hangs on the kubelet's configuration",
    Part.NUMA_NODES: "how many NUMA nodes there are and what each has",
    Part.CPU_LAYOUT: "which CPUs share a core, a cache and a socket",
    Part.CPUS: "which CPUs pods hold",
    Part.MEMORY: "of which NUMA nodes pods hold memory",
    Part.DEVICES: "of which NUMA nodes devices are and which of them pods hold",
    Part.PODS: "what pods are beside what they hold",
}


def broken_state(reasons: Sequence[StateFileReason]) -> tuple[str, ...]:
    """Why there is nothing to capture: each file in plain words and in the kubelet's."""
    return tuple(
        f"{state_sentence(reason)}: the kubelet does not start with it: {state_message(reason)}"
        for reason in reasons
    )


def _some(names: Sequence[str]) -> str:
    rest = len(names) - _MOST_NAMES
    return ", ".join(names[:_MOST_NAMES]) + (f" and {rest} more" if rest > 0 else "")
