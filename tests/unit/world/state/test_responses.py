"""Which answers of device plugins a kubelet can read again from its checkpoint."""

import pytest

from nodewright.world.state.devices import DeviceEntry, DeviceFile, device_state, passed_over
from nodewright.world.state.responses import is_readable

GROUP = b"\x33"  # field 6 begins a group
END = b"\x34"


def text(number: int, content: bytes) -> bytes:
    return bytes([number << 3 | 2, len(content)]) + content


@pytest.mark.parametrize(
    "content",
    [
        b"",
        text(1, text(1, b"KEY") + text(2, "wört".encode())),
        text(2, text(1, b"/in") + text(2, b"/out") + b"\x18\x01"),
        text(3, text(1, b"/dev/a") + text(3, b"rw")),
        text(5, text(1, b"vendor.example/gpu=all")),
        text(9, b"\xff"),  # nobody knows it, so it may be anything
        b"\x08\x01",  # the environment as a number: nobody knows such a field
        b"\x31" + bytes(8),
        b"\x35" + bytes(4),
        GROUP + text(1, b"\xff") + GROUP + END + END,
        b"\x30" + b"\xff" * 9 + b"\x01",
    ],
)
def test_an_answer_with_fields_of_any_kind_is_read(content: bytes) -> None:
    assert is_readable(content)


@pytest.mark.parametrize(
    "content",
    [
        text(1, text(1, b"\xff")),
        text(3, text(3, b"\xed\xa0\x80")),
        text(5, b"vendor.example/gpu=all"),  # a name where a message should be
        b"\x0a\x05abc",
        b"\x0a",
        b"\x02\x00",  # field 0
        b"\x80\x80\x80\x80\x20",  # a field beyond the largest
        b"\x31" + bytes(7),
        GROUP,
        GROUP + b"\x3c",
        GROUP + b"\x00",
        END,
        b"\x36",
        b"\x30" + b"\xff" * 9 + b"\x02",
        b"\x30" + b"\x80" * 10,
    ],
)
def test_an_answer_that_is_no_message_is_not(content: bytes) -> None:
    assert not is_readable(content)


def test_the_kubelet_knows_nothing_of_devices_whose_answer_it_cannot_read() -> None:
    good, bad = (
        DeviceEntry(pod=pod, container="c", resource="r", devices={0: (pod,)}, response=response)
        for pod, response in (("p1", b""), ("p2", b"\x07"))
    )
    file = DeviceFile((good, bad), {"r": ("p1", "p2")})
    assert passed_over(file) == (bad,)
    assert device_state(file).held == {"p1": {"c": {"r": frozenset({"p1"})}}}
