"""How often can the same bill be paid?"""

from collections.abc import Iterable, Sequence

from msgspec.structs import replace

from nodewright.core.quota.admission import Bill
from nodewright.core.quota.amounts import NOTHING, total
from nodewright.model.objects import ResourceList
from nodewright.model.quota_objects import ResourceQuota
from nodewright.values.quantity import Quantity


def together(bills: Iterable[Bill]) -> Bill:
    """One bill in place of several that are paid one after the other."""
    items: dict[int, ResourceList] = {}
    for bill in bills:
        for index, requested in bill.items:
            items[index] = total(items.get(index, {}), requested)
    return Bill(items=tuple(items.items()))


def times_payable(bill: Bill, quotas: Sequence[ResourceQuota]) -> int | None:
    """How often the bill can be paid before a quota has no more room; None: as often as one likes.

    It is what paying one after the other comes to, as no charge is less than nothing.

    >>> from nodewright.model.quota_objects import ResourceQuotaStatus
    >>> status = ResourceQuotaStatus(hard={"pods": Quantity.of(10)}, used={"pods": Quantity.of(3)})
    >>> times_payable(Bill(items=((0, {"pods": Quantity.of(2)}),)), [ResourceQuota(status=status)])
    3
    """
    times = [
        _whole_times(requested, quotas[index].status.hard[name], quotas[index].status.used.get(name, NOTHING))
        for index, amounts in bill.items
        for name, requested in amounts.items()
    ]
    return min(times, default=None)


def paid_times(bill: Bill, quotas: Sequence[ResourceQuota], times: int) -> tuple[ResourceQuota, ...]:
    """The quotas after the bill was paid so often, room or not."""
    after = list(quotas)
    for index, requested in bill.items if times else ():
        status = after[index].status
        used = total(status.used, {name: amount * times for name, amount in requested.items()})
        after[index] = replace(after[index], status=replace(status, used=used))
    return tuple(after)


def _whole_times(amount: Quantity, hard: Quantity, used: Quantity) -> int:
    room = hard - used
    scale = min(room.scale, amount.scale)
    left: int = room.unscaled * 10 ** (room.scale - scale)
    each: int = amount.unscaled * 10 ** (amount.scale - scale)
    return max(left // each, 0)
