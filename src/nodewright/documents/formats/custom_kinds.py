"""Kinds of custom resources with pod templates, as the table in `data/pod_templates.json` and `--template-path` name them."""

import msgspec

from nodewright.model.errors import Fault, InputError


class TemplatePath(msgspec.Struct, frozen=True, kw_only=True):
    """Where objects of a kind have a pod template."""

    path: str
    replicas: tuple[str, ...] = ()
    """The fields whose product is the number of pods: in the list item or member of the path, or from `spec` on."""
    form: str = "template"
    """What is there: a pod template, or something that a controller makes pods of (`custom_pod_forms`)."""
    leader: str = ""
    """The template of the first pod of each group, which then is none of these."""
    claims: str = "spec.volumeClaimTemplates"
    """The templates of the claims that the controller adds to the pods as volumes."""


class CustomKind(msgspec.Struct, frozen=True, kw_only=True):
    """A kind of custom resources with pod templates; without a group of any group."""

    kind: str
    pods: tuple[TemplatePath, ...]
    group: str | None = None


def parsed_template_path(text: str) -> CustomKind:
    """The kind of an option such as `Rollout=spec.template` or `Rollout.argoproj.io=spec.template`.

    Errors: InputError.
    """
    name, separator, path = text.partition("=")
    kind, _, group = name.partition(".")
    if not separator or not kind or not all(path.split(".")):
        rule = "must be KIND=PATH, e.g. Rollout=spec.template or JobSet=spec.replicatedJobs[*].template.spec.template"
        raise InputError([Fault(source="--template-path", value=text, rule=rule)])
    return CustomKind(
        kind=kind, group=group or None, pods=(TemplatePath(path=path, replicas=("spec.replicas",)),)
    )
