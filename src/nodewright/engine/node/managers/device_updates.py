"""State updates from device plugins: listed devices and responses to `Allocate`."""

from collections.abc import Mapping
from typing import TypeVar

from msgspec.structs import replace
from msgspec.structs import replace as changed

from nodewright.engine.core.devices.device_manager import plugin_with_preference
from nodewright.engine.node.events import DevicesAllocated, DevicesObserved
from nodewright.engine.node.managers.hint_providers import DeviceProvider
from nodewright.engine.node.node_state import NodeState
from nodewright.model.kubernetes.node_profile import Device

T = TypeVar("T")


def with_listed_devices(state: NodeState, event: DevicesObserved) -> NodeState:
    """The node with the devices that a plugin lists: capacity counts all of them, allocatable the healthy ones.

    Pods keep their devices even if these are unhealthy or no longer listed. A resource whose plugin is gone for good
    stays with a capacity of 0 until the next start, so that it differs from one that no plugin manages.

    Follows: v1.36, devicemanager/manager.go, genericDeviceUpdateCallback, GetCapacity; nodestatus/setters.go,
        MachineInfo.
    """
    facts, devices = state.config.facts, state.held.devices
    if event.devices is None:
        lists = {**facts.devices, event.resource: ()}
        preferences = _without(facts.preferred_allocation, event.resource)
        devices = devices.without_resource(event.resource)
    else:
        lists = {**facts.devices, event.resource: event.devices}
        preferences = {**facts.preferred_allocation, event.resource: event.preference}
        devices = devices.with_devices(event.resource, event.devices)
    after = _with_lists(state, lists, preferences)
    return replace(after, held=replace(after.held, devices=devices))


def without_listed_devices(state: NodeState) -> NodeState:
    """The node before plugins register again: known resources have no devices.

    Follows: v1.36, devicemanager/manager.go, readCheckpoint.
    """
    return _with_lists(state, dict.fromkeys(state.held.devices.device_lists, ()), {})


def with_allocate_responses(state: NodeState, event: DevicesAllocated) -> NodeState:
    """The node with the plugins' `Allocate` responses for a pod."""
    devices = state.held.devices
    for (container, resource), response in event.responses.items():
        devices = devices.with_allocation_response(event.uid, container, resource, response)
    return replace(state, held=replace(state.held, devices=devices))


def _with_lists(
    state: NodeState, lists: Mapping[str, tuple[Device, ...]], preferences: Mapping[str, str]
) -> NodeState:
    config = state.config
    facts = changed(config.facts, devices=lists, preferred_allocation=preferences)
    plugins = {name: plugin_with_preference(preferences.get(name, "lowest")) for name in lists}
    providers = tuple(
        DeviceProvider(changed(provider.manager, plugins=plugins))
        if isinstance(provider, DeviceProvider)
        else provider
        for provider in config.managers.providers
    )
    managers = changed(config.managers, providers=providers)
    return replace(state, config=config.with_facts(facts, managers))


def _without(by_name: Mapping[str, T], name: str) -> dict[str, T]:
    return {key: value for key, value in by_name.items() if key != name}
