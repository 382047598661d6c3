"""The bodies of pods that the agent takes: whatever is wrong with one is an error of the request."""

from typing import Any

import msgspec
import pytest
from tests.support.mutated_documents import POD, mutated

from nodewright.agent.serving.pod_routes import _pod
from nodewright.cluster.serving.routes import APIError
from nodewright.engine.core.requests.resource_defaults import with_defaults

VALID: dict[str, Any] = {"apiVersion": "v1", "kind": "Pod", **POD}


@pytest.mark.parametrize("part", ["metadata", "spec", "status"])
def test_malformed_pods_are_errors_of_the_request(part: str) -> None:
    rest = {name: value for name, value in VALID.items() if name != part}
    codes = []
    for body in mutated({part: VALID[part]}):
        whole = body[:-1] + b"," + msgspec.json.encode(rest)[1:] if body.endswith(b"}") else body
        try:
            with_defaults(_pod(whole, "d"))
        except APIError as error:
            codes.append(error.code)
    assert len(codes) > 50
    assert set(codes) <= {400, 413, 422}
