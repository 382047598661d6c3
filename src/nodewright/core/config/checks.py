"""Would the kubelet start? Its checks one after the other: gates, values, then what its parts make of them."""

import re
from collections.abc import Iterator
from dataclasses import dataclass

from nodewright.core.config.defaults import defaulted
from nodewright.core.config.validation import validation_faults
from nodewright.model.faults import ConfigFault, Stage
from nodewright.model.gates import FeatureGates, Settings, settle
from nodewright.model.kubelet_config import KubeletConfiguration
from nodewright.model.machine import MachineInfo
from nodewright.model.reservations import read_reservations
from nodewright.model.thresholds import EvictionSettings, parse_thresholds
from nodewright.values.golang import quoted


@dataclass(frozen=True, slots=True, kw_only=True)
class Settled:
    """A configuration as the kubelet would use it, and all that keeps it from starting."""

    config: KubeletConfiguration
    settings: Settings
    faults: tuple[ConfigFault, ...] = ()
    """All that is wrong, in the order of the kubelet's checks; it reports those of the first stage only."""

    @property
    def gates(self) -> FeatureGates:
        """The features that are on."""
        return self.settings.gates


def settled(
    config: KubeletConfiguration,
    *,
    machine: MachineInfo | None = None,
    cgroup_version: int = 2,
    refuse_unknown_gates: bool = True,
) -> Settled:
    """The configuration with its defaults and gates, and every fault that the kubelet would stumble over.

    Without a machine, CPU numbers are not checked against it.

    Errors:  in the value.

    >>> both = settled(KubeletConfiguration(max_pods=-1, kube_reserved={"cpu": "-1"}))
    >>> [(str(fault.stage), fault.path) for fault in both.faults]
    [('validation', 'maxPods'), ('startup', 'kubeReserved[cpu]')]
    """
    settings = settle(config.feature_gates, refuse_unknown=refuse_unknown_gates)
    complete = defaulted(config, settings.gates)
    faults = (
        *(ConfigFault(stage=Stage.GATES, text=text, path="featureGates") for text in settings.errors),
        *validation_faults(complete, settings.gates, cgroup_version=cgroup_version),
        *startup_faults(complete, machine, cgroup_version=cgroup_version),
    )
    return Settled(config=complete, settings=settings, faults=faults)


def startup_faults(
    config: KubeletConfiguration, machine: MachineInfo | None = None, *, cgroup_version: int = 2
) -> tuple[ConfigFault, ...]:
    """Values of a valid configuration that keep the kubelet from setting itself up.

    Follows: v1.36, cmd/kubelet/app/server.go, run; kubelet/kubelet.go, NewMainKubelet (soft thresholds).
    """
    hard = read_reservations(config, machine).faults
    every = parse_thresholds(
        EvictionSettings(
            hard=config.eviction_hard,
            soft=config.eviction_soft,
            soft_grace_period=config.eviction_soft_grace_period,
            minimum_reclaim=config.eviction_minimum_reclaim,
        )
    ).faults
    # The hard thresholds are read twice; their faults count once.
    return (
        *hard,
        *_qos_reserved(config),
        *_swap(config, cgroup_version),
        *(fault for fault in every if fault not in hard),
    )


_PERCENTAGE = re.compile(r"[+-]?[0-9]+", re.ASCII)


def _qos_reserved(config: KubeletConfiguration) -> Iterator[ConfigFault]:
    """What is wrong with the memory kept for better classes of pods.

    Follows: v1.36, kubelet/cm/container_manager.go, ParseQOSReserved.
    """
    for name, text in sorted(config.qos_reserved.items()):
        number = text.rstrip("%")
        if name != "memory":
            trouble = f"cannot reserve {quoted(name)} resource"
        elif not text.endswith("%"):
            trouble = f"percentage expected, got '{text}'"
        elif not _PERCENTAGE.fullmatch(number) or len(number.lstrip("+-0")) > 18:
            trouble = f"invalid number in percentage '{text}'"
        elif not 0 <= int(number) <= 100:
            trouble = "percentage must be between 0 and 100"
        else:
            continue
        if name == "memory":
            trouble = f"failed to parse percentage {quoted(text)} for {quoted(name)} resource: {trouble}"
        yield ConfigFault(
            stage=Stage.STARTUP,
            text=f"--qos-reserved value failed to parse: {trouble}",
            path=f"qosReserved[{name}]",
            value=text,
        )


def _swap(config: KubeletConfiguration, cgroup_version: int) -> Iterator[ConfigFault]:
    behavior = config.memory_swap.swap_behavior
    if cgroup_version == 1 and behavior == "LimitedSwap":
        text = "swap feature is enabled and LimitedSwap but it is only supported with cgroupv2"
        yield ConfigFault(stage=Stage.STARTUP, text=text, path="memorySwap.swapBehavior", value=behavior)
