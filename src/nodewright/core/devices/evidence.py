"""What is there of a resource, where, and who has it?"""

from nodewright.core.devices.state import NONE, UNLISTED, DeviceState
from nodewright.model.device_reasons import DeviceHolder, DevicesAt, DeviceStock
from nodewright.values.idset import NUMASet


def device_stock(state: DeviceState, resource: str) -> DeviceStock:
    """All devices of the resource by the NUMA nodes that they are on, and their holders."""
    listed, free = state.lists.get(resource, UNLISTED), state.free(resource)
    places = []
    for mask, registered in listed.counts:
        here = {name for name, its in listed.masks.items() if its == mask}
        places.append(
            DevicesAt(
                numa=NUMASet(mask),
                registered=registered,
                healthy=len(here & listed.healthy),
                free=len(here & free),
            )
        )
    holders = tuple(state.holders(resource))
    held = NONE.union(*(devices for _, _, devices in holders))
    return DeviceStock(
        resource=resource,
        places=tuple(places),
        holders=tuple(
            DeviceHolder(pod=pod, container=container, devices=tuple(sorted(devices)))
            for pod, container, devices in holders
        ),
        stranded=tuple(sorted(state.in_use.get(resource, NONE) - held)),
    )
