"""A PodResources socket that says what it is told to, for tests of those who ask one."""

from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from functools import partial
from pathlib import Path
from typing import Any

import grpc

from nodewright.node.pod_resources import allocatable_resources, pod_resources
from nodewright.node.state import NodeState
from nodewright.world.podresources import api_pb2 as v1
from nodewright.world.podresources.messages import SERVICE, allocatable_message, pod_message


@contextmanager
def telling(path: Path, node: NodeState) -> Iterator[None]:
    """A socket at which it is told who has what of this node, as by its kubelet."""
    pods = [pod_message(pod_resources(node, pod)) for pod in node.pods.values()]
    there = allocatable_resources(node)
    listed = v1.ListPodResourcesResponse(pod_resources=pods).SerializeToString()
    with saying(path, List=listed, GetAllocatableResources=allocatable_message(there).SerializeToString()):
        yield


@contextmanager
def saying(path: Path, **answers: bytes) -> Iterator[None]:
    """A socket at which calls of these names are answered with these bytes, and others not."""
    server = grpc.server(ThreadPoolExecutor(1))
    calls = {
        name: grpc.unary_unary_rpc_method_handler(
            partial(_answered, answer), request_deserializer=bytes, response_serializer=bytes
        )
        for name, answer in answers.items()
    }
    server.add_generic_rpc_handlers((grpc.method_handlers_generic_handler(SERVICE, calls),))
    server.add_insecure_port(f"unix:{path}")
    server.start()
    try:
        yield
    finally:
        server.stop(None).wait()


def _answered(answer: bytes, _asked: bytes, _context: Any) -> bytes:
    return answer
