"""What a runtime can do, found out by asking it."""

import asyncio
import contextlib

from nodewright.world.cri import api_pb2 as cri
from nodewright.world.cri import seen
from nodewright.world.cri.channel import CONFIG, EVENTS, STATUS, Channel, NotImplementedThere
from nodewright.world.ports import RuntimeFacts

_DRIVERS = {cri.SYSTEMD: "systemd", cri.CGROUPFS: "cgroupfs"}
_NO_DRIVER = "RuntimeConfig: which driver of cgroups it uses is not known; it has to be cgroupDriver"
_NO_EVENTS = "GetContainerEvents: changes are seen up to a second late"
_PROBE_S = 0.3


async def probed(channel: Channel, told: cri.VersionResponse) -> RuntimeFacts:
    """Which of the younger calls a runtime has, and what comes in their place.

    Errors: WorldError.
    """
    missing: list[str] = []
    try:
        config = await channel.ask(CONFIG, cri.RuntimeConfigRequest(), "")
        driver = _DRIVERS.get(config.linux.cgroup_driver, "")
    except NotImplementedThere:
        missing.append(CONFIG.name)
        status = await channel.ask(STATUS, cri.StatusRequest(verbose=True), "")
        driver = seen.driver_of(status.info)
    if not await _has_events(channel):
        missing.append(EVENTS.name)
    has_events = EVENTS.name not in missing or told.runtime_name == "containerd"
    lacks = [] if driver else [_NO_DRIVER]
    lacks += [] if has_events else [_NO_EVENTS]
    return RuntimeFacts(
        name=told.runtime_name,
        version=told.runtime_version,
        has_images=True,
        has_events=has_events,
        cgroup_driver=driver,
        missing=tuple(missing),
        lacks=tuple(lacks),
    )


async def _has_events(channel: Channel) -> bool:
    """Whether it tells of changes: who does not says so at once."""
    news = channel.listen(EVENTS, cri.GetEventsRequest())
    try:
        # The limit is ours alone: a runtime that knew of it might be the first to hang up, with another error.
        async with asyncio.timeout(_PROBE_S), contextlib.aclosing(news):
            await anext(news, None)
    except NotImplementedThere:
        return False
    except TimeoutError:
        pass
    return True
