"""Devices of the node come and go while it runs: what plugins list, and what they say of what they hand out."""

from collections.abc import Mapping
from dataclasses import replace as changed
from typing import TypeVar

from msgspec.structs import replace

from nodewright.core.devices.manager import plugin_named
from nodewright.model.profile import Device
from nodewright.node.events import DevicesObserved, DevicesServed
from nodewright.node.providers import Devices
from nodewright.node.state import NodeState

T = TypeVar("T")


def listed(state: NodeState, event: DevicesObserved) -> NodeState:
    """The node with the devices that a plugin lists: capacity counts all of them, allocatable those that are healthy.

    Pods keep what they hold, whatever becomes of it.

    Follows: v1.36, devicemanager/manager.go, genericDeviceUpdateCallback, GetCapacity.
    """
    facts, devices = state.config.facts, state.held.devices
    if event.devices is None:
        lists = _without(facts.devices, event.resource)
        preferences = _without(facts.preferred_allocation, event.resource)
        devices = devices.without_resource(event.resource)
    else:
        lists = {**facts.devices, event.resource: event.devices}
        preferences = {**facts.preferred_allocation, event.resource: event.preference}
        devices = devices.with_devices(event.resource, event.devices)
    after = _with_lists(state, lists, preferences)
    return replace(after, held=replace(after.held, devices=devices))


def unlisted(state: NodeState) -> NodeState:
    """The node before any plugin has come back: what was registered is known by name, with nothing to give.

    Follows: v1.36, devicemanager/manager.go, readCheckpoint.
    """
    return _with_lists(state, dict.fromkeys(state.held.devices.lists, ()), {})


def served(state: NodeState, event: DevicesServed) -> NodeState:
    """The node with what plugins said of what a pod holds."""
    devices = state.held.devices
    for (container, resource), response in event.responses.items():
        devices = devices.with_given(event.uid, container, resource, response)
    return replace(state, held=replace(state.held, devices=devices))


def _with_lists(
    state: NodeState, lists: Mapping[str, tuple[Device, ...]], preferences: Mapping[str, str]
) -> NodeState:
    config = state.config
    facts = changed(config.facts, devices=lists, preferred_allocation=preferences)
    plugins = {name: plugin_named(preferences.get(name, "lowest")) for name in lists}
    providers = tuple(
        Devices(changed(one.manager, plugins=plugins)) if isinstance(one, Devices) else one
        for one in config.managers.providers
    )
    managers = changed(config.managers, providers=providers)
    return replace(state, config=config.with_facts(facts, managers))


def _without(by_name: Mapping[str, T], name: str) -> dict[str, T]:
    return {key: value for key, value in by_name.items() if key != name}
