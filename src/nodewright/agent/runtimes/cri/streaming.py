"""The URLs at which a container runtime serves interactive streams: exec, attach and port-forward."""

from nodewright.agent.host.ports import (
    AttachStreamRequest,
    ExecStreamRequest,
    PortForwardStreamRequest,
    StreamRequest,
)
from nodewright.agent.runtimes.cri import api_pb2 as cri
from nodewright.agent.runtimes.cri.channel import ATTACH, EXEC, PORT_FORWARD, CRIChannel
from nodewright.model.errors import HostError


class CRIStreamingServer:
    """The streaming server of the runtime behind ``channel``."""

    def __init__(self, channel: CRIChannel) -> None:
        self._channel = channel

    async def streaming_url(self, request: StreamRequest) -> str:
        """The URL for these streams; it is valid for a minute.

        Follows: v1.36, kubelet/kuberuntime/kuberuntime_container.go, GetExec, GetAttach; kuberuntime_sandbox.go,
            GetPortForward.
        Errors: HostError.
        """
        url = await self._requested_url(request)
        if not url.startswith(("http://", "https://")):
            raise HostError("open streams at", self._channel.endpoint, f"the runtime returns no URL: {url!r}")
        return url

    async def _requested_url(self, request: StreamRequest) -> str:
        match request:
            case ExecStreamRequest(container_id=container_id, command=command, streams=streams):
                exec_request = cri.ExecRequest(
                    container_id=container_id,
                    cmd=command,
                    stdin=streams.stdin,
                    stdout=streams.stdout,
                    stderr=streams.stderr,
                    tty=streams.tty,
                )
                return (await self._channel.call(EXEC, exec_request, container_id)).url
            case AttachStreamRequest(container_id=container_id, streams=streams):
                attach_request = cri.AttachRequest(
                    container_id=container_id,
                    stdin=streams.stdin,
                    stdout=streams.stdout,
                    stderr=streams.stderr,
                    tty=streams.tty,
                )
                return (await self._channel.call(ATTACH, attach_request, container_id)).url
            case PortForwardStreamRequest(sandbox_id=sandbox_id, ports=ports):
                forward_request = cri.PortForwardRequest(pod_sandbox_id=sandbox_id, port=ports)
                return (await self._channel.call(PORT_FORWARD, forward_request, sandbox_id)).url
