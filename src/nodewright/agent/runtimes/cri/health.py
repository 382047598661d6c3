"""Whether a container runtime and its network are ready, and what the runtime can do."""

from nodewright.agent.host.ports import RuntimeHandler, RuntimeHealth
from nodewright.agent.runtimes.cri import api_pb2 as cri
from nodewright.agent.runtimes.cri.channel import STATUS, CRIChannel

_CONDITIONS = (
    ("RuntimeReady", "container runtime not ready"),
    ("NetworkReady", "container runtime network not ready"),
)


async def runtime_health(channel: CRIChannel) -> RuntimeHealth:
    """The health of the runtime behind a channel.

    Errors: HostError.
    """
    return health_of(await channel.call(STATUS, cri.StatusRequest(), ""))


def health_of(response: cri.StatusResponse) -> RuntimeHealth:
    """The health that a response reports; a condition that is missing counts as false.

    Follows: v1.36, kubelet/kubelet.go, updateRuntimeUp; kubelet/container/runtime.go, RuntimeCondition.String.
    """
    conditions = {condition.type: condition for condition in response.status.conditions}
    errors = [
        f"{text}: {_condition_text(conditions.get(kind))}"
        for kind, text in _CONDITIONS
        if kind not in conditions or not conditions[kind].status
    ]
    return RuntimeHealth(
        errors=tuple(errors),
        handlers=tuple(
            RuntimeHandler(
                name=handler.name,
                has_recursive_read_only_mounts=handler.features.recursive_read_only_mounts,
                has_user_namespaces=handler.features.user_namespaces,
            )
            for handler in response.runtime_handlers
        ),
        has_supplemental_groups_policy=(
            response.features.supplemental_groups_policy if response.HasField("features") else None
        ),
    )


def _condition_text(condition: cri.RuntimeCondition | None) -> str:
    if condition is None:
        return "<nil>"
    status = str(condition.status).lower()
    return f"{condition.type}={status} reason:{condition.reason} message:{condition.message}"
