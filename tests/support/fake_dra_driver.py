"""The plugin of a DRA driver on a real socket: registers, notes its calls, and prepares a device for each claim."""

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import grpc
from grpc import aio as grpc_aio

from nodewright.agent.devices import dra_pb2 as api
from nodewright.agent.devices import pluginregistration_pb2 as registration_api
from nodewright.agent.devices.dra_plugins import DRA_PLUGIN_TYPE, SERVICES

DRIVER = "gpu.example.com"


class FakeDriver:
    """A driver's plugin: notes its calls, and answers with a CDI device for each claim."""

    def __init__(self, version: str = "v1.DRAPlugin", *, has_cdi: bool = True) -> None:
        """``has_cdi``: whether the devices have names for a container runtime."""
        self.has_cdi = has_cdi
        self.version, self.calls, self.status = version, list[str](), list[str]()
        self.is_answered = asyncio.Event()
        self.error = ""
        self.health: asyncio.Queue[list[api.DeviceHealth] | None] = asyncio.Queue()
        """What is reported of the devices, in order; None: the reports end."""

    async def watch(self, _request: Any, _context: Any) -> AsyncIterator[api.NodeWatchResourcesResponse]:
        while (devices := await self.health.get()) is not None:
            yield api.NodeWatchResourcesResponse(devices=devices)

    def prepare(self, request: api.NodePrepareResourcesRequest, _context: Any) -> Any:
        self.calls += [f"prepare {claim.name}" for claim in request.claims]
        answers = {
            claim.uid: api.NodePrepareResourceResponse(error=self.error)
            if self.error
            else api.NodePrepareResourceResponse(
                devices=[
                    api.Device(
                        pool_name="pool",
                        device_name="gpu-0",
                        cdi_device_ids=[f"{DRIVER}/gpu={claim.name}"] * self.has_cdi,
                    )
                ]
            )
            for claim in request.claims
        }
        return api.NodePrepareResourcesResponse(claims=answers)

    def unprepare(self, request: api.NodeUnprepareResourcesRequest, _context: Any) -> Any:
        self.calls += [f"unprepare {claim.name}" for claim in request.claims]
        answers = {claim.uid: api.NodeUnprepareResourceResponse(error=self.error) for claim in request.claims}
        return api.NodeUnprepareResourcesResponse(claims=answers)

    def info(self, _request: Any, _context: Any) -> registration_api.PluginInfo:
        return registration_api.PluginInfo(
            type=DRA_PLUGIN_TYPE, name=DRIVER, supported_versions=[self.version]
        )

    def notify(self, request: registration_api.RegistrationStatus, _context: Any) -> Any:
        self.status.append(request.error or "registered")
        self.loop.call_soon_threadsafe(self.is_answered.set)
        return registration_api.RegistrationStatusResponse()

    @asynccontextmanager
    async def serve(self, socket: Path) -> AsyncIterator[None]:
        self.loop = asyncio.get_running_loop()
        server = grpc_aio.server()
        service = SERVICES.get(self.version, SERVICES["v1.DRAPlugin"]).strip("/")
        handled: dict[str, dict[str, tuple[Any, Any]]] = {
            service: {
                "NodePrepareResources": (self.prepare, api.NodePrepareResourcesRequest),
                "NodeUnprepareResources": (self.unprepare, api.NodeUnprepareResourcesRequest),
            },
            "pluginregistration.Registration": {
                "GetInfo": (self.info, registration_api.InfoRequest),
                "NotifyRegistrationStatus": (self.notify, registration_api.RegistrationStatus),
            },
        }
        for name, methods in handled.items():
            handlers = {
                method: grpc.unary_unary_rpc_method_handler(
                    answer,
                    request_deserializer=kind.FromString,
                    response_serializer=lambda message: message.SerializeToString(),
                )
                for method, (answer, kind) in methods.items()
            }
            server.add_generic_rpc_handlers((grpc.method_handlers_generic_handler(name, handlers),))
        health = grpc.unary_stream_rpc_method_handler(
            self.watch,
            request_deserializer=api.NodeWatchResourcesRequest.FromString,
            response_serializer=lambda message: message.SerializeToString(),
        )
        handlers = {"NodeWatchResources": health}
        server.add_generic_rpc_handlers(
            (grpc.method_handlers_generic_handler("v1alpha1.DRAResourceHealth", handlers),)
        )
        server.add_insecure_port(f"unix:{socket}")
        await server.start()
        try:
            yield
        finally:
            await server.stop(None)
