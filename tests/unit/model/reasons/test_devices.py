import pytest
from tests.support.device_managers import GPU

from nodewright.model.reasons.devices import (
    DeviceAllocationFailed,
    DeviceHolder,
    DevicePluginMissing,
    DevicePreferenceFailed,
    DeviceReason,
    DeviceRequestChanged,
    DevicesAt,
    DevicesChosen,
    DevicesMiscounted,
    DeviceStock,
    DeviceTier,
    DeviceUnlisted,
    DeviceUnregistered,
    HeldDevicesUnhealthy,
    NoHealthyDevices,
    NotEnoughDevices,
    UnhealthyDevicesReused,
)
from nodewright.model.reasons.reason import kubelet_text, sentence
from nodewright.model.values.idset import NUMASet

PLACES = (
    DevicesAt(numa=NUMASet(), registered=1, healthy=1, free=1),
    DevicesAt(numa=NUMASet.of(0), registered=2, healthy=2, free=0),
    DevicesAt(numa=NUMASet.of(0, 1), registered=2, healthy=1, free=0),
)
HOLDERS = (
    DeviceHolder(pod="q", container="app", devices=("a", "d")),
    DeviceHolder(pod="r", container="app", devices=("b",)),
)
STOCK = DeviceStock(resource=GPU, places=PLACES, holders=HOLDERS, stranded=("e",))
PLACELESS = DeviceStock(resource=GPU, places=PLACES[:1], holders=(), stranded=())
UNEXPECTED = "Allocate failed due to {}, which is unexpected"

REFUSALS: list[tuple[DeviceReason, str, str]] = [
    (
        DeviceRequestChanged(pod="uid", container="app", resource=GPU, held=("a", "b"), requested=3),
        f'pod "uid" container "app" changed request for resource "{GPU}" from 2 to 3',
        f"{GPU}: app requests 3 and already holds a, b",
    ),
    (
        DeviceUnregistered(resource=GPU),
        f"cannot allocate unregistered device {GPU}",
        f"{GPU}: no device plugin has registered it since the kubelet started",
    ),
    (
        NoHealthyDevices(stock=STOCK),
        f"no healthy devices present; cannot allocate unhealthy devices {GPU}",
        f"{GPU}: none of 5 devices is healthy",
    ),
    (
        HeldDevicesUnhealthy(stock=STOCK, devices=("a",)),
        f"previously allocated devices are no longer healthy; cannot allocate unhealthy devices {GPU}",
        f"{GPU}: the container holds a, no longer healthy",
    ),
    (
        NotEnoughDevices(stock=STOCK, requested=4, missing=3, available=1),
        f"requested number of devices unavailable for {GPU}. Requested: 3, Available: 1",
        (
            f"{GPU}: 4 requested, 1 reused from an init container, 1 of 5 free; 1 not healthy; "
            "no NUMA node: 1 of 1 free; NUMA node 0: 0 of 2 free; NUMA nodes 0-1: 0 of 2 free; "
            "a, d held by app of pod q; b held by app of pod r; e counted as in use though no container holds them"
        ),
    ),
    (
        NotEnoughDevices(stock=PLACELESS, requested=4, missing=4, available=1),
        f"requested number of devices unavailable for {GPU}. Requested: 4, Available: 1",
        f"{GPU}: 4 requested, 1 of 1 free",
    ),
    (
        DevicePreferenceFailed(resource=GPU, error="no idea", stranded=("a", "b")),
        "device plugin GetPreferredAllocation rpc failed with err: no idea",
        (
            f"{GPU}: the plugin's GetPreferredAllocation failed: no idea; "
            "a, b count as in use until a pod with devices is removed"
        ),
    ),
    (
        DevicePreferenceFailed(resource=GPU, error="no idea", stranded=()),
        "device plugin GetPreferredAllocation rpc failed with err: no idea",
        f"{GPU}: the plugin's GetPreferredAllocation failed: no idea",
    ),
    (
        DeviceAllocationFailed(resource=GPU, error="not today", devices=("a",)),
        "not today",
        f"{GPU}: the plugin's Allocate of a failed: not today",
    ),
    (
        DevicePluginMissing(resource=GPU, during="preference"),
        f"endpoint not found in cache for a registered resource: {GPU}",
        f"{GPU}: its device plugin is not known",
    ),
    (
        DevicePluginMissing(resource=GPU, during="allocation"),
        f"unknown Device Plugin {GPU}",
        f"{GPU}: its device plugin is not known",
    ),
    (
        DevicesMiscounted(resource=GPU, requested=-1, got=2),
        "unexpectedly allocated less resources than required. Requested: -1, Got: 2",
        f"{GPU}: -1 devices cannot be allocated",
    ),
]


@pytest.mark.parametrize(("reason", "text", "plain"), REFUSALS)
def test_a_refusal_has_the_kubelets_error_and_a_sentence(reason: DeviceReason, text: str, plain: str) -> None:
    assert kubelet_text(reason) == ("UnexpectedAdmissionError", UNEXPECTED.format(text))
    assert sentence(reason) == plain


def test_a_crash_of_the_kubelet_has_our_message() -> None:
    crash = DeviceUnlisted(resource=GPU, device="a")
    text = f"{GPU}: the kubelet crashes, because its plugin no longer lists a"
    assert kubelet_text(crash) == ("KubeletCrashes", text)
    assert sentence(crash) == text


def test_chosen_devices_are_listed_by_rank() -> None:
    tiers = (
        DeviceTier(why="reuse", candidates=("a",), taken=("a",)),
        DeviceTier(why="aligned", candidates=("b", "c"), taken=("b", "c")),
        DeviceTier(why="preferred", candidates=("d",), taken=("d",)),
        DeviceTier(why="unaligned", candidates=("e",), taken=("e",)),
        DeviceTier(why="withoutTopology", candidates=("f", "g"), taken=("f",)),
    )
    assert sentence(DevicesChosen(resource=GPU, affinity=NUMASet.of(0), tiers=tiers)) == (
        f"{GPU}: a reused from an init container, then b, c on the NUMA nodes of the affinity, "
        "then d preferred by the plugin, then e on other NUMA nodes, then f without topology"
    )
    assert sentence(UnhealthyDevicesReused(resource=GPU, devices=("a",))) == (
        f"{GPU}: a, reused from an init container, are no longer healthy"
    )
