"""Whether a runtime is ready, in the kubelet's words, and what it can do."""

import pytest

from nodewright.agent.host.ports import RuntimeHandler, RuntimeHealth
from nodewright.agent.runtimes.cri import api_pb2 as cri
from nodewright.agent.runtimes.cri.channel import health_of


def condition(kind: str, *, status: bool = True, reason: str = "", message: str = "") -> cri.RuntimeCondition:
    return cri.RuntimeCondition(type=kind, status=status, reason=reason, message=message)


RUNTIME, NETWORK = condition("RuntimeReady"), condition("NetworkReady")
NO_NETWORK = condition(
    "NetworkReady", status=False, reason="NetworkPluginNotReady", message="cni plugin not initialized"
)

NO_NETWORK_ERROR = (
    "container runtime network not ready: NetworkReady=false reason:NetworkPluginNotReady"
    " message:cni plugin not initialized"
)


@pytest.mark.parametrize(
    ("conditions", "errors"),
    [
        ([RUNTIME, NETWORK], ()),
        (
            [RUNTIME, NO_NETWORK],
            (NO_NETWORK_ERROR,),
        ),
        (
            [condition("RuntimeReady", status=False, reason="R", message="m"), NO_NETWORK],
            (
                "container runtime not ready: RuntimeReady=false reason:R message:m",
                NO_NETWORK_ERROR,
            ),
        ),
        ([NETWORK], ("container runtime not ready: <nil>",)),
    ],
)
def test_conditions_become_errors(conditions: list[cri.RuntimeCondition], errors: tuple[str, ...]) -> None:
    response = cri.StatusResponse(status=cri.RuntimeStatus(conditions=conditions))
    assert health_of(response) == RuntimeHealth(errors=errors)


def test_handlers_and_features_are_those_of_the_runtime() -> None:
    handlers = [
        cri.RuntimeHandler(features=cri.RuntimeHandlerFeatures(user_namespaces=True)),
        cri.RuntimeHandler(name="kata"),
    ]
    response = cri.StatusResponse(
        status=cri.RuntimeStatus(conditions=[RUNTIME, NETWORK]),
        runtime_handlers=handlers,
        features=cri.RuntimeFeatures(),
    )
    assert health_of(response) == RuntimeHealth(
        handlers=(RuntimeHandler(name="", has_user_namespaces=True), RuntimeHandler(name="kata")),
        has_supplemental_groups_policy=False,
    )
