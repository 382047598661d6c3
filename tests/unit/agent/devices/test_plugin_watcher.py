"""What plugins say of themselves that wait to be registered, judged as a kubelet judges it."""

from pathlib import Path

import pytest

from nodewright.agent.devices.protocols import PluginInfo, PluginRegistration
from nodewright.agent.devices.registration import plugin_info_error, registration

SOCKET = Path("/registry/gpu.sock")
GOOD = PluginInfo("DevicePlugin", "example.com/gpu", "", ("v1alpha1", "v1beta1"))
INVALID = "RegisterPlugin error -- plugin validation failed with err: "
FAULTS = (
    (GOOD, ""),
    (
        GOOD._replace(type="CSIPlugin"),
        "RegisterPlugin error -- no handler registered for plugin type: CSIPlugin at socket /registry/gpu.sock",
    ),
    (
        GOOD._replace(versions=("v1", "v2")),
        f"{INVALID}manager version, v1beta1, is not among plugin supported versions [v1 v2]",
    ),
    (
        GOOD._replace(name="cpu"),
        f'{INVALID}invalid name of device plugin socket: the ResourceName "cpu" is invalid',
    ),
)


@pytest.mark.parametrize(("info", "text"), FAULTS)
def test_the_first_fault_is_reported(info: PluginInfo, text: str) -> None:
    assert plugin_info_error(info, SOCKET) == text


@pytest.mark.parametrize(
    ("endpoint", "directory", "name"),
    [
        ("", "/registry", "gpu.sock"),
        ("/run/gpu/dp.sock", "/run/gpu", "dp.sock"),
        ("dp.sock", "/registry", "dp.sock"),
    ],
)
def test_a_plugins_endpoint_is_its_own_or_the_registration_socket(
    endpoint: str, directory: str, name: str
) -> None:
    plugin_registration = registration(GOOD._replace(endpoint=endpoint), SOCKET)
    assert plugin_registration == PluginRegistration(
        "example.com/gpu", ("v1alpha1", "v1beta1"), Path(directory), name
    )
