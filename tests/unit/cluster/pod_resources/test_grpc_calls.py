"""Answers of gRPC servers: bounded before they are decoded."""

import asyncio

import pytest

from nodewright.agent.devices import deviceplugin_pb2 as api
from nodewright.cluster.pod_resources.grpc_calls import MalformedResponseError, unary_response


def test_an_answer_that_is_too_large_is_not_decoded() -> None:
    answer = api.AllocateResponse(
        container_responses=[api.ContainerAllocateResponse(envs={"A": "x" * 2000})]
    ).SerializeToString()

    async def call() -> bytes:
        return answer

    async def response(max_bytes: int | None) -> api.AllocateResponse:
        return await unary_response(call(), api.AllocateResponse, max_bytes)

    assert asyncio.run(response(None)).container_responses
    assert asyncio.run(response(len(answer))).container_responses
    with pytest.raises(MalformedResponseError, match=r"received message larger than max \(\d+ vs\. 1024\)"):
        asyncio.run(response(1024))
