"""Responses of device plugins in a checkpoint: which of them the kubelet can decode."""

import pytest

from nodewright.documents.profiles.state_files.device_checkpoint import (
    DeviceCheckpoint,
    PodDevicesEntry,
    device_state_from_checkpoint,
    is_readable,
    unreadable_entries,
)

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
def test_a_response_with_fields_of_any_type_is_readable(content: bytes) -> None:
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
def test_an_invalid_message_is_not_readable(content: bytes) -> None:
    assert not is_readable(content)


def test_devices_with_an_unreadable_response_are_not_held() -> None:
    good, bad = (
        PodDevicesEntry(pod=pod, container="c", resource="r", devices={0: (pod,)}, response=response)
        for pod, response in (("p1", b""), ("p2", b"\x07"))
    )
    file = DeviceCheckpoint((good, bad), {"r": ("p1", "p2")})
    assert unreadable_entries(file) == (bad,)
    assert device_state_from_checkpoint(file).pod_devices == {"p1": {"c": {"r": frozenset({"p1"})}}}
