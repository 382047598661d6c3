"""The pod templates of custom resources: which kinds have them, where they are, and how many pods they make.

The table of kinds is `data/pod_templates.json`; `--template-path` adds others. In a path `[*]` stands for each item of a
list, `*` for each member of a mapping.
"""

import json
from collections.abc import Iterator, Mapping, Sequence
from functools import cache
from importlib import resources
from typing import Any, NamedTuple

import msgspec

from nodewright.documents.formats.custom_resources import POD_FORMS, number_of
from nodewright.documents.formats.object_selection import CustomKind, TemplatePath

_MAX_DEPTH = 12


class CustomPod(NamedTuple):
    """A pod template of a custom resource."""

    path: str
    template: dict[str, Any]
    replicas: int
    suffix: str
    """What distinguishes its pods from those of other templates of the object; empty if there are none."""


@cache
def known_kinds() -> tuple[CustomKind, ...]:
    """The kinds of the table."""
    text = (
        resources.files("nodewright.documents.formats").joinpath("data/pod_templates.json").read_text("utf-8")
    )
    return msgspec.convert(json.loads(text), tuple[CustomKind, ...])


def custom_pods(
    value: Mapping[str, Any], group: str, added: Sequence[CustomKind] = ()
) -> tuple[CustomPod, ...] | None:
    """The pod templates of an object; None if its kind is not known."""
    known = next(
        (
            known
            for known in (*added, *known_kinds())
            if known.kind == value.get("kind") and known.group in (None, group)
        ),
        None,
    )
    if known is None:
        return None
    sites = [(each, *site) for each in known.pods for site in _sites(value, each.path)]
    pods = []
    for each, path, holder, part in sites:
        template = POD_FORMS[each.form](part, value)
        if template is not None:
            suffix = _suffix(path, holder) if len(sites) > 1 else ""
            claimed = _with_claimed_volumes(template, _claim_names(value, each.claims))
            pods.append(CustomPod(path, claimed, _replicas(each, value, holder), suffix))
    return tuple(pods)


def _claim_names(value: Mapping[str, Any], path: str) -> list[str]:
    templates = (template for _, _, template in _sites(value, f"{path}[*]"))
    metas = (template.get("metadata") for template in templates)
    return [meta["name"] for meta in metas if isinstance(meta, dict) and isinstance(meta.get("name"), str)]


def _with_claimed_volumes(template: dict[str, Any], claims: Sequence[str]) -> dict[str, Any]:
    """The template with a volume for each claim that its own volumes do not name; after them, which keeps their places.

    Departs: volumes that no container mounts are there too, which some controllers leave out.
    """
    spec = template.get("spec")
    volumes = spec.get("volumes") or [] if isinstance(spec, dict) else None
    if not claims or not isinstance(volumes, list):
        return template
    own = {volume.get("name") for volume in volumes if isinstance(volume, dict)}
    added = [
        {"name": name, "persistentVolumeClaim": {"claimName": name}} for name in claims if name not in own
    ]
    return {**template, "spec": {**template["spec"], "volumes": [*volumes, *added]}}


def template_paths(value: Any, path: str = "", depth: int = 0) -> Iterator[str]:
    """The paths of what looks like pod templates: mappings with a spec that has containers."""
    if depth > _MAX_DEPTH:
        return
    if isinstance(value, dict):
        spec = value.get("spec")
        if path and isinstance(spec, dict) and _has_containers(spec.get("containers")):
            yield path
            return
        for key, item in value.items():
            yield from template_paths(item, f"{path}.{key}".lstrip("."), depth + 1)
    elif isinstance(value, list):
        for item in value[:1]:
            yield from template_paths(item, f"{path}[*]", depth + 1)


def _has_containers(containers: Any) -> bool:
    return isinstance(containers, list) and any(
        isinstance(container, dict) and "image" in container for container in containers
    )


def _sites(value: Any, path: str) -> Iterator[tuple[str, Any, dict[str, Any]]]:
    """Each mapping at the path: its path, the innermost list item or member that holds it, and itself."""
    places: list[tuple[str, Any, Any]] = [("", value, value)]
    for step in path.split("."):
        name = step.removesuffix("[*]")
        after: list[tuple[str, Any, Any]] = []
        for at, holder, part in places:
            if not isinstance(part, dict):
                continue
            if name == "*":
                after += [(f"{at}.{key}".lstrip("."), item, item) for key, item in part.items()]
            elif step == name:
                after.append((f"{at}.{name}".lstrip("."), holder, part.get(name)))
            else:
                items = part.get(name) if isinstance(part.get(name), list) else []
                after += [
                    (f"{at}.{name}[{index}]".lstrip("."), item, item)
                    for index, item in enumerate(items or ())
                ]
        places = after
    return ((at, holder, part) for at, holder, part in places if isinstance(part, dict))


def _replicas(template: TemplatePath, value: Mapping[str, Any], holder: Any) -> int:
    product = 1
    for field in template.replicas:
        root = value if field.startswith("spec.") else holder
        product *= number_of(root, field)
    if template.leader and any(True for _ in _sites(value, template.leader)):
        product -= number_of(value, template.replicas[0])
    return max(product, 0)


def _suffix(path: str, holder: Any) -> str:
    """The name of the list item or member in the path, or of the template's own field."""
    names = holder if isinstance(holder, dict) else {}
    name = names.get("name") or names.get("groupName")
    if isinstance(name, str):
        return name
    steps = [step for step in path.split(".") if step not in ("spec", "template")]
    return steps[-1].partition("[")[0].lower() if steps else ""
