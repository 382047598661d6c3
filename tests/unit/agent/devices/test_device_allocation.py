"""What plugins want containers to have, and what of it plain processes can have."""

import asyncio

import pytest
from msgspec.structs import replace

from nodewright.agent.devices import deviceplugin_pb2 as api
from nodewright.agent.devices.device_allocation import (
    DeviceAllocationError,
    DeviceAllocator,
    with_device_options,
)
from nodewright.agent.devices.protocols import DeviceRunContainerOptions, SimulatedDevicePlugins
from nodewright.agent.host.ports import ContainerConfig, DeviceSpec, Mount
from nodewright.agent.state.effects import AllocatedDevices
from nodewright.engine.core.cgroups.cgroup_facts import ContainerSettings
from nodewright.model.kubernetes.objects import Container, Pod

WISH = ContainerConfig(
    pod=Pod(),
    container=Container(name="main"),
    attempt=0,
    spec_hash="",
    log_path="main/0.log",
    settings=ContainerSettings(),
    cgroup_files=(),
    env={"GPU": "mine"},
    mounts=(Mount(host_path="/a", container_path="/lib"),),
)


def outfitted(response: api.ContainerAllocateResponse, *, sees_host: bool = False) -> ContainerConfig:
    use = AllocatedDevices(
        container="main", resource="v.com/gpu", devices=("g",), response=response.SerializeToString()
    )
    others = replace(use, container="other", response=b"garbage of another container")
    handing = DeviceAllocator(SimulatedDevicePlugins(), sees_host=sees_host)
    return asyncio.run(handing.with_devices(WISH, (others, use)))


def test_containers_get_all_that_plugins_say() -> None:
    made = outfitted(
        api.ContainerAllocateResponse(
            envs={"GPU": "theirs", "NIC": "n"},
            mounts=[api.Mount(host_path="/usr/lib/v", container_path="/v", read_only=True)],
            devices=[api.DeviceSpec(host_path="/dev/v0", container_path="/dev/v", permissions="rw")],
            annotations={"v.com/a": "b"},
            cdi_devices=[api.CDIDevice(name="v.com/gpu=g")],
        )
    )
    assert made.env == {"GPU": "mine", "NIC": "n"}
    assert made.mounts == (
        Mount(host_path="/usr/lib/v", container_path="/v", is_read_only=True),
        *WISH.mounts,
    )
    assert made.devices == (DeviceSpec(host_path="/dev/v0", container_path="/dev/v", permissions="rw"),)
    assert (made.annotations, made.cdi_devices) == ({"v.com/a": "b"}, ("v.com/gpu=g",))


def test_what_the_pod_itself_mounts_there_counts() -> None:
    gear = DeviceRunContainerOptions(mounts=(Mount(host_path="/b", container_path="/lib"),))
    assert with_device_options(WISH, gear).mounts == WISH.mounts


@pytest.mark.parametrize(
    ("response", "said"),
    [
        (
            api.ContainerAllocateResponse(mounts=[api.Mount(host_path="/x", container_path="/y")]),
            "needs a mount at /y, but it is at /x",
        ),
        (
            api.ContainerAllocateResponse(devices=[api.DeviceSpec(host_path="/x", container_path="/y")]),
            "needs a device at /y, but it is at /x",
        ),
        (
            api.ContainerAllocateResponse(cdi_devices=[api.CDIDevice(name="v.com/gpu=g")]),
            r"have CDI names \(v.com/gpu=g\)",
        ),
    ],
)
def test_plain_processes_are_not_started_with_less_than_plugins_want(
    response: api.ContainerAllocateResponse, said: str
) -> None:
    with pytest.raises(DeviceAllocationError, match=said):
        outfitted(response, sees_host=True)


def test_plain_processes_have_variables_and_files_where_they_are() -> None:
    response = api.ContainerAllocateResponse(
        envs={"NIC": "n"}, devices=[api.DeviceSpec(host_path="/dev/x", container_path="/dev/x")]
    )
    assert outfitted(response, sees_host=True).env == {"GPU": "mine", "NIC": "n"}
