"""A device plugin in one file: made-up devices on NUMA nodes, whose health a file switches.

    python plugin.py --directory /var/lib/nodewright/device-plugins --resource example.com/gpu \
        gpu-0@0 gpu-1@0 gpu-2@1 gpu-3@1 --prefers highest --ill /tmp/ill

With --registry instead of --directory it puts its socket into that directory (`plugins_registry`) and waits to be found.
It speaks the interface of the kubelet, v1beta1, and so works with a kubelet, too. Each device is NAME@NUMA (several:
NAME@0+1; none: NAME). Names in the file given by --ill, one a line, are not healthy.
"""

import argparse
import threading
import time
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import grpc

from nodewright.agent.devices import deviceplugin_pb2 as api
from nodewright.agent.devices import pluginregistration_pb2 as registry

LOOK_EVERY_S = 0.2


class Plugin:
    """What the agent calls, one method a call; the names are those of the interface."""

    def __init__(self, told: argparse.Namespace) -> None:
        self.told = told
        self.ill = told_ill(told.ill)
        self.changed = threading.Condition()

    def GetDevicePluginOptions(self, _request: api.Empty, _context: object) -> api.DevicePluginOptions:  # noqa: N802
        return api.DevicePluginOptions(
            pre_start_required=self.told.pre_start,
            get_preferred_allocation_available=self.told.prefers != "none",
        )

    def ListAndWatch(  # noqa: N802
        self, _request: api.Empty, context: grpc.ServicerContext
    ) -> Iterator[api.ListAndWatchResponse]:
        """All devices at once, and all of them again when one of them changes."""
        while context.is_active():
            with self.changed:
                ill = self.ill
            yield api.ListAndWatchResponse(devices=[listed(one, ill) for one in self.told.devices])
            with self.changed:
                while self.ill == ill and context.is_active():
                    self.changed.wait(LOOK_EVERY_S)

    def GetPreferredAllocation(  # noqa: N802
        self, request: api.PreferredAllocationRequest, _context: object
    ) -> api.PreferredAllocationResponse:
        """Those that must be among them, and then the highest or lowest names."""
        answer = api.PreferredAllocationResponse()
        for asked in request.container_requests:
            must = sorted(asked.must_include_deviceIDs)
            others = sorted(
                set(asked.available_deviceIDs) - set(must), reverse=self.told.prefers == "highest"
            )
            answer.container_responses.add(deviceIDs=[*must, *others][: asked.allocation_size])
        return answer

    def Allocate(self, request: api.AllocateRequest, _context: object) -> api.AllocateResponse:  # noqa: N802
        """A variable that names the devices; real ones would come with files in /dev, libraries or CDI names."""
        answer = api.AllocateResponse()
        for asked in request.container_requests:
            ids = sorted(asked.devices_ids)
            print(f"allocate {' '.join(ids)}", flush=True)
            one = answer.container_responses.add()
            one.envs[variable(self.told.resource)] = ",".join(ids)
            for path in self.told.file:
                one.devices.add(host_path=path, container_path=path, permissions="rw")
            for mount in self.told.mount:
                host, _, inside = mount.partition(":")
                one.mounts.add(host_path=host, container_path=inside or host, read_only=True)
            if self.told.cdi:
                for name in ids:
                    one.cdi_devices.add(name=f"{self.told.cdi}={name}")
        return answer

    def PreStartContainer(  # noqa: N802
        self, request: api.PreStartContainerRequest, _context: object
    ) -> api.PreStartContainerResponse:
        """Here devices could be set back to how they were."""
        print(f"prepare {' '.join(sorted(request.devices_ids))}", flush=True)
        return api.PreStartContainerResponse()

    def GetInfo(self, _request: registry.InfoRequest, _context: object) -> registry.PluginInfo:  # noqa: N802
        """Who it is; without an endpoint it is served where it was asked."""
        return registry.PluginInfo(
            type="DevicePlugin", name=self.told.resource, supported_versions=["v1beta1"]
        )

    def NotifyRegistrationStatus(  # noqa: N802
        self, request: registry.RegistrationStatus, _context: object
    ) -> registry.RegistrationStatusResponse:
        """What became of it."""
        said = f"registered {self.told.resource}"
        print(said if request.plugin_registered else f"not registered: {request.error}", flush=True)
        return registry.RegistrationStatusResponse()

    def look(self) -> None:
        """See whether somebody has switched a device's health."""
        ill = told_ill(self.told.ill)
        with self.changed:
            if ill != self.ill:
                self.ill = ill
                self.changed.notify_all()


def listed(device: str, ill: frozenset[str]) -> api.Device:
    """A device as the plugin lists it."""
    name, _, places = device.partition("@")
    found = api.Device(ID=name, health="Unhealthy" if name in ill else "Healthy")
    for numa in places.split("+") if places else ():
        found.topology.nodes.add(ID=int(numa))
    return found


def told_ill(path: Path | None) -> frozenset[str]:
    """The names in the file."""
    return frozenset(path.read_text().split()) if path is not None and path.exists() else frozenset()


def variable(resource: str) -> str:
    """The name of the variable that a container finds its devices in: EXAMPLE_COM_GPU."""
    return "".join(letter if letter.isalnum() else "_" for letter in resource).upper()


def serve(plugin: Plugin, socket: Path) -> grpc.Server:
    """The plugin on a socket of its own."""
    calls = {
        "GetDevicePluginOptions": (plugin.GetDevicePluginOptions, api.Empty),
        "GetPreferredAllocation": (plugin.GetPreferredAllocation, api.PreferredAllocationRequest),
        "Allocate": (plugin.Allocate, api.AllocateRequest),
        "PreStartContainer": (plugin.PreStartContainer, api.PreStartContainerRequest),
    }
    handlers = {name: unary(call, asked) for name, (call, asked) in calls.items()}
    found_calls = {
        "GetInfo": (plugin.GetInfo, registry.InfoRequest),
        "NotifyRegistrationStatus": (plugin.NotifyRegistrationStatus, registry.RegistrationStatus),
    }
    found = {name: unary(call, asked) for name, (call, asked) in found_calls.items()}
    handlers["ListAndWatch"] = grpc.unary_stream_rpc_method_handler(
        plugin.ListAndWatch,
        request_deserializer=api.Empty.FromString,
        response_serializer=lambda answer: answer.SerializeToString(),
    )
    server = grpc.server(ThreadPoolExecutor(max_workers=8))
    services = {"v1beta1.DevicePlugin": handlers, "pluginregistration.Registration": found}
    server.add_generic_rpc_handlers(
        tuple(grpc.method_handlers_generic_handler(name, each) for name, each in services.items())
    )
    socket.unlink(missing_ok=True)
    server.add_insecure_port(f"unix:{socket}")
    server.start()
    return server


def unary(call: Callable[..., Any], asked: Any) -> Any:
    """A call with one request and one answer."""
    return grpc.unary_unary_rpc_method_handler(
        call,
        request_deserializer=asked.FromString,
        response_serializer=lambda answer: answer.SerializeToString(),
    )


def register(kubelet: Path, resource: str, endpoint: str) -> None:
    """Tell the agent, or the kubelet, where the plugin listens."""
    with grpc.insecure_channel(
        f"unix:{kubelet}", options=[("grpc.default_authority", "localhost")]
    ) as channel:
        call = channel.unary_unary(
            "/v1beta1.Registration/Register",
            request_serializer=lambda asked: asked.SerializeToString(),
            response_deserializer=api.Empty.FromString,
        )
        call(api.RegisterRequest(version="v1beta1", endpoint=endpoint, resource_name=resource), timeout=15)
    print(f"registered {resource}", flush=True)


def wait_to_be_found(told: argparse.Namespace) -> None:
    """Serve in the registry's directory until somebody ends it: whoever looks there asks who we are."""
    plugin = Plugin(told)
    server = serve(plugin, told.registry / f"{variable(told.resource).lower()}-reg.sock")
    try:
        while True:
            plugin.look()
            time.sleep(LOOK_EVERY_S)
    finally:
        server.stop(None).wait()


def run(told: argparse.Namespace) -> None:
    """Serve until somebody ends it; register again whenever the agent has begun anew."""
    plugin = Plugin(told)
    kubelet = told.directory / "kubelet.sock"
    name = f"{variable(told.resource).lower()}.sock"
    server, known = None, None
    while True:
        plugin.look()
        # Another agent, another socket: it may well have the number of the one before.
        now = kubelet.stat().st_ctime_ns if kubelet.exists() else None
        if now is not None and now != known:
            if server is not None:
                server.stop(None).wait()
            server = serve(plugin, told.directory / name)
            try:
                register(kubelet, told.resource, name)
                known = now
            except grpc.RpcError as error:
                print(f"not registered: {error.details()}", flush=True)
        time.sleep(LOOK_EVERY_S)


def arguments() -> argparse.Namespace:
    parser = argparse.ArgumentParser(description="A device plugin with made-up devices.")
    parser.add_argument("devices", nargs="+", metavar="NAME[@NUMA[+NUMA]]")
    place = parser.add_mutually_exclusive_group(required=True)
    place.add_argument("--directory", type=Path, help="where kubelet.sock is: register there")
    place.add_argument("--registry", type=Path, help="plugins_registry: wait there to be found")
    parser.add_argument("--resource", required=True, help="such as example.com/gpu")
    parser.add_argument("--ill", type=Path, help="a file with the names of devices that are not healthy")
    parser.add_argument("--prefers", choices=("none", "lowest", "highest"), default="none")
    parser.add_argument("--pre-start", action="store_true", help="want to be told before containers start")
    parser.add_argument("--file", action="append", default=[], help="a device file for containers")
    parser.add_argument("--mount", action="append", default=[], help="HOST:CONTAINER, mounted read-only")
    parser.add_argument("--cdi", default="", help="VENDOR/CLASS of CDI names for containers")
    return parser.parse_args()


if __name__ == "__main__":
    told = arguments()
    wait_to_be_found(told) if told.registry else run(told)
