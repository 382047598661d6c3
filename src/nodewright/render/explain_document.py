"""Explanations as documents: everything that the text says, and the numbers behind it."""

from collections.abc import Mapping, Sequence
from typing import Any

from nodewright.core.eviction import UnderCondition
from nodewright.core.requests import qos_class
from nodewright.model.objects import Pod
from nodewright.model.profile import API_VERSION
from nodewright.model.reasons import NotJudged
from nodewright.node.config import NodeConfig
from nodewright.node.counterfactual import Suggestion
from nodewright.node.explanation import Explanation, ResourceView, RoundView
from nodewright.node.step import Decision
from nodewright.render.documents import fact_document, plain
from nodewright.render.explain import Told
from nodewright.render.hindsight import hindsight_document
from nodewright.render.placement import placement_document
from nodewright.render.policies import policies_document
from nodewright.render.reasoning import STALL_S, stall_s
from nodewright.render.sentences import sentence
from nodewright.render.suggestions import suggestion_text


def explanation_document(
    told: Sequence[Told], config: NodeConfig, *, warnings: Sequence[str] = (), skipped: Mapping[str, int]
) -> dict[str, Any]:
    """The explanations as one document.

    Units: cpu in thousandths in `because` and `change`, in CPUs in `asked`; everything else in bytes or pieces.
    """
    return {
        "apiVersion": API_VERSION,
        "kind": "ExplanationReport",
        "node": config.facts.name,
        "kubernetesVersion": config.release.release.text,
        "rulesOf": config.release.rules_of,
        **policies_document(config),
        "kubeletDefects": config.parts.defects.value,
        "pods": [_pod_document(one) for one in told],
        "skipped": dict(skipped),
        "warnings": list(warnings),
    }


def _pod_document(told: Told) -> dict[str, Any]:
    explained = told.explained
    pod, taken = explained.pod, explained.step
    document: dict[str, Any] = {
        **_named(pod),
        "uid": pod.uid,
        "qosClass": qos_class(pod).value,
        "verdict": told.verdict,
        "admitted": taken.decision is Decision.ADMITTED,
    }
    if told.origin:
        document["from"] = told.origin
    if told.hindsight is not None:
        document["failed"] = hindsight_document(told.hindsight)
    if told.kubelet.reason:
        document["reason"], document["message"] = told.kubelet
    document["why"] = [sentence(one) for one in explained.refusals]
    document["because"] = [fact_document(one) for one in explained.refusals]
    document["notJudged"] = [
        {"what": one.what, "because": one.because} for one in explained.refusals if isinstance(one, NotJudged)
    ]
    document["conditions"] = [_condition_document(one) for one in explained.conditions]
    document["topologyManager"] = {
        "policy": explained.policy,
        "scope": explained.scope,
        **_judge(explained),
        "rounds": [_round_document(one) for one in explained.rounds],
    }
    document["choices"] = [
        {"container": container, "because": [fact_document(one) for one in reasons]}
        for container, reasons in explained.choices
        if reasons
    ]
    if explained.placement is not None:
        document["placement"] = placement_document(explained.placement)
    victims = taken.victims.victims if taken.victims else ()
    document["preempted"] = [_named(one.pod) for one in victims]
    return document | _beyond(explained)


def _judge(explained: Explanation) -> dict[str, Any]:
    """The policy that is not the kubelet's and has judged or chosen, if there is one."""
    by = explained.rounds[0].judged_by if explained.rounds else None
    return {} if by is None else {"judgedBy": {"policy": by.policy, "said": by.said, "isKubelets": False}}


def _condition_document(one: UnderCondition) -> dict[str, Any]:
    return {
        "type": one.condition.value,
        "taint": {"key": one.taint.key, "effect": one.taint.effect},
        "scheduler": {"passes": one.scheduler.is_open, "because": one.scheduler.value},
        "kubelet": {"passes": one.kubelet.is_open, "because": one.kubelet.value},
    }


def _beyond(explained: Explanation) -> dict[str, Any]:
    """What a real kubelet does wrong, and what would have let the pod in."""
    least, most = stall_s(explained)
    others = explained.others
    document: dict[str, Any] = {
        "combinations": explained.combinations,
        "stall": {"leastSeconds": round(least, 3), "mostSeconds": round(most, 3), "warned": most >= STALL_S},
        "defects": [{"text": sentence(one.reason), **fact_document(one)} for one in explained.defects],
    }
    put_right = explained.without_defects
    if put_right is not None:
        document["withoutDefects"] = {"verdict": put_right.decision.value}
        if put_right.placement is not None:
            document["withoutDefects"]["placement"] = placement_document(put_right.placement)
    document["suggestions"] = [_suggestion_document(one) for one in others.suggestions]
    return document | {
        "inVain": list(others.in_vain),
        "cutShort": list(others.cut_short),
        "decisions": others.decisions,
    }


def _round_document(one: RoundView) -> dict[str, Any]:
    document: dict[str, Any] = {"container": one.container or None, "admits": one.admits}
    if one.hint is not None:
        document |= {"numa": None if one.hint.numa is None else list(one.hint.numa)}
        document |= {"preferred": one.hint.preferred, "proved": one.proved}
    document["combinations"] = one.combinations
    document["resources"] = [_resource_document(each) for each in one.resources]
    document["obstacles"] = [fact_document(each) for each in one.obstacles]
    return document


def _resource_document(view: ResourceView) -> dict[str, Any]:
    hints = view.hints
    document: dict[str, Any] = {
        "provider": hints.provider,
        "resource": hints.resource or None,
        "says": hints.says,
        "asked": view.asked,
    }
    if view.silence is not None:
        document["silence"] = view.silence
    if hints.says == "hints":
        document |= {
            "preferred": [list(numa) for numa in hints.preferred],
            "narrowest": None if hints.narrowest is None else list(hints.narrowest),
            "enoughIfEmpty": view.enough_if_empty,
        }
    return document | {"sites": plain(view.sites or ())}


def _suggestion_document(one: Suggestion) -> dict[str, Any]:
    return {
        "kind": one.kind,
        "text": suggestion_text(one),
        "change": fact_document(one.change),
        "placedAnew": one.placed_anew,
        "preempts": [_named(pod) for pod in one.preempts],
    }


def _named(pod: Pod) -> dict[str, str]:
    return {"name": pod.metadata.name, "namespace": pod.metadata.namespace or "default"}
