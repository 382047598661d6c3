"""What would count for a pod on this node and is not known or not modelled."""

from nodewright.model.objects import Pod
from nodewright.model.reasons import NotJudged
from nodewright.node.config import NodeConfig


def open_questions(config: NodeConfig, pod: Pod) -> tuple[NotJudged, ...]:
    """The questions whose answers could turn this pod away; none: the verdict stands."""
    return tuple(_host(config, pod))


def _host(config: NodeConfig, pod: Pod) -> list[NotJudged]:
    found = []
    context = pod.spec.security_context
    strict = context is not None and context.supplemental_groups_policy == "Strict"
    if strict and config.facts.has_supplemental_groups_policy is None:
        found.append(
            NotJudged(what="container runtime", because="supplementalGroupsPolicy: Strict needs its support")
        )
    if config.facts.has_app_armor is None and _wants_app_armor(pod):
        found.append(NotJudged(what="AppArmor", because="the pod has an AppArmor profile"))
    if any(
        "resourceClaimName" in claim or "resourceClaimTemplateName" in claim
        for claim in pod.spec.resource_claims
    ):
        found.append(NotJudged(what="DRA manager", because="the pod has resource claims"))
    return found


def _wants_app_armor(pod: Pod) -> bool:
    contexts = [
        container.security_context or {} for container in (*pod.spec.init_containers, *pod.spec.containers)
    ]
    profiles = [context.get("appArmorProfile") for context in contexts]
    if pod.spec.security_context is not None:
        profiles.append(pod.spec.security_context.app_armor_profile)
    return any(profile and profile.get("type") != "Unconfined" for profile in profiles) or any(
        key.startswith("container.apparmor.security.beta.kubernetes.io/") and value != "unconfined"
        for key, value in pod.metadata.annotations.items()
    )
