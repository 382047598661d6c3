"""Those who ask a PodResources socket: a kubelet's or an agent's."""

import os
import stat
from collections.abc import Callable
from pathlib import Path
from typing import TypeVar

import grpc
from google.protobuf.message import DecodeError, Message

from nodewright.model.pod_resources import AllocatableResources, PodResources
from nodewright.world.errors import WorldError
from nodewright.world.podresources import api_pb2 as v1
from nodewright.world.podresources.messages import SERVICE, OddAnswerError, allocatable_of, pod_of

Asked = TypeVar("Asked")
Found = TypeVar("Found")
Reply = TypeVar("Reply", bound=Message)

USUAL_SOCKET = Path("/var/lib/kubelet/pod-resources/kubelet.sock")
LIMIT_S = 10.0
"""How long an answer may take, as long as others who ask kubelets wait."""

_OPERATION = "ask PodResources at"
_MOST_BYTES = 16 << 20
_LONGEST_PATH = 107
_OPTIONS = (
    # Servers written in Rust refuse the path of a socket as an authority.
    ("grpc.default_authority", "localhost"),
    ("grpc.max_receive_message_length", _MOST_BYTES),
    ("grpc.enable_retries", 0),
    ("grpc.enable_http_proxy", 0),
)
_SAID = {
    grpc.StatusCode.UNIMPLEMENTED: "who listens there does not speak PodResources v1",
    grpc.StatusCode.RESOURCE_EXHAUSTED: "it is asked too often, or its answer is too long",
}


class PodResourcesClient:
    """A PodResources socket, asked once for each call; nothing is kept open."""

    def __init__(self, path: Path = USUAL_SOCKET, limit_s: float = LIMIT_S) -> None:
        self.path, self._limit_s = path, limit_s

    def pods(self) -> tuple[PodResources, ...]:
        """The active pods and what their containers have, by name.

        Errors: WorldError where nobody answers in time, or what is answered makes no sense.
        """
        reply = self._asked("List", v1.ListPodResourcesRequest(), v1.ListPodResourcesResponse)
        found = [self._told(pod_of, one) for one in reply.pod_resources]
        return tuple(sorted(found, key=lambda one: one.full_name))

    def allocatable(self) -> AllocatableResources:
        """What containers can have for themselves; errors as `pods`."""
        question = v1.AllocatableResourcesRequest()
        return self._told(
            allocatable_of, self._asked("GetAllocatableResources", question, v1.AllocatableResourcesResponse)
        )

    def pod(self, namespace: str, name: str) -> PodResources:
        """One active pod; errors as `pods`, also for a pod that is not there."""
        question = v1.GetPodResourcesRequest(pod_name=name, pod_namespace=namespace)
        return self._told(pod_of, self._asked("Get", question, v1.GetPodResourcesResponse).pod_resources)

    def _asked(self, call: str, question: Message, reply: type[Reply]) -> Reply:
        _check_place(self.path)
        with grpc.insecure_channel(f"unix:{self.path}", options=_OPTIONS) as channel:
            ask = channel.unary_unary(
                f"/{SERVICE}/{call}",
                request_serializer=type(question).SerializeToString,
                response_deserializer=_bytes,
            )
            try:
                answer = ask(question, timeout=self._limit_s)
            except grpc.RpcError as error:
                raise self._failed(error, call) from None
        try:
            return reply.FromString(answer)
        except DecodeError as error:
            raise self._odd(f"no answer of {call}: {error}") from None

    def _told(self, read: Callable[[Asked], Found], message: Asked) -> Found:
        try:
            return read(message)
        except OddAnswerError as error:
            raise self._odd(str(error)) from None

    def _odd(self, said: str) -> WorldError:
        return WorldError(_OPERATION, str(self.path), said)

    def _failed(self, error: grpc.RpcError, call: str) -> WorldError:
        # Errors of calls carry their code; the stubs say so of a class that they cannot be told to be.
        code, details = error.code(), error.details()
        if code is grpc.StatusCode.DEADLINE_EXCEEDED:
            return self._odd(f"no answer to {call} within {self._limit_s:g} s")
        said = details or code.name
        if code is grpc.StatusCode.UNAVAILABLE:
            said = f"nobody answers as a kubelet does: {said}"
        hint = _SAID.get(code)
        return self._odd(f"{said} ({hint})" if hint else said)


def _check_place(path: Path) -> None:
    """Say what is wrong with a socket before gRPC says it in its own way.

    Errors: WorldError.
    """
    try:
        mode = path.stat().st_mode
    except FileNotFoundError:
        raise WorldError(_OPERATION, str(path), "there is no such socket: does the kubelet run?") from None
    except OSError as error:
        raise WorldError(_OPERATION, str(path), error.strerror or str(error)) from None
    if not stat.S_ISSOCK(mode):
        raise WorldError(_OPERATION, str(path), "it is no socket")
    if not os.access(path, os.W_OK):
        raise WorldError(_OPERATION, str(path), "permission denied: most kubelets' sockets are root's own")
    if len(os.fsencode(path)) > _LONGEST_PATH:
        raise WorldError(_OPERATION, str(path), f"paths of sockets have at most {_LONGEST_PATH} bytes")


def _bytes(answer: bytes) -> bytes:
    return answer
