"""Custom resources of every known kind, with a pod at each place where the kind has one."""

import copy
from collections.abc import Iterator
from typing import Any

from nodewright.documents.formats.custom_resources import known_kinds

_AMOUNTS = {"requests": {"cpu": "1", "memory": "1Gi"}, "limits": {"memory": "2Gi"}}
_CONTAINER = {"name": "main", "image": "a", "resources": _AMOUNTS}
_TEMPLATE = {"metadata": {"labels": {"app": "a"}}, "spec": {"containers": [_CONTAINER]}}
_GUEST = {
    "cpu": {"cores": 2, "sockets": 1, "threads": 1, "model": "host-model"},
    "memory": {"guest": "2Gi", "hugepages": {"pageSize": "2Mi"}},
}
_PARTS: dict[str, dict[str, Any]] = {
    "template": _TEMPLATE,
    "revision": {"metadata": {}, "spec": {"containerConcurrency": 5, "containers": [{"image": "a", "resources": _AMOUNTS}]}},
    "workflow": {
        "name": "step", "metadata": {"labels": {"a": "b"}}, "container": {"image": "a", "resources": _AMOUNTS},
        "sidecars": [{"name": "s", "image": "a"}], "initContainers": [{"name": "i", "image": "a", "mirrorVolumeMounts": True}],
        "podSpecPatch": '{"terminationGracePeriodSeconds": 3}', "tolerations": [{"operator": "Exists"}],
    },
    "spark": {
        "cores": 1, "coreRequest": "500m", "coreLimit": "2", "memory": "512m", "memoryOverhead": "1g",
        "gpu": {"name": "nvidia.com/gpu", "quantity": 1}, "labels": {"a": "b"}, "nodeSelector": {"a": "b"},
    },
    "launcher": {
        "metadata": {"labels": {"a": "b"}},
        "spec": {
            "domain": {
                "cpu": _GUEST["cpu"], "memory": _GUEST["memory"], "resources": _AMOUNTS, "ioThreadsPolicy": "auto",
                "devices": {"disks": [{"name": "d", "disk": {"bus": "virtio"}}], "interfaces": [{"name": "n", "masquerade": {}}], "gpus": [{"name": "g", "deviceName": "nvidia.com/gpu"}]},
            },
            "networks": [{"name": "n", "pod": {}}], "volumes": [{"name": "d", "containerDisk": {"image": "a"}}],
        },
    },
}  # fmt: skip
"""What stands at a place, by the form in the table of kinds."""


def custom_objects() -> Iterator[dict[str, Any]]:
    """An object of each kind of the table."""
    for kind in known_kinds():
        value: dict[str, Any] = {
            "apiVersion": f"{kind.group}/v1",
            "kind": kind.kind,
            "metadata": {"name": "a", "namespace": "shop"},
        }
        for pod in kind.pods:
            part = copy.deepcopy(_PARTS[pod.form])
            _put(value, pod.path, part["spec"] if pod.path == "spec" else part)
            for field in pod.replicas:
                if field.startswith("spec."):
                    _put(value, field, 2)
                else:
                    _put(
                        value,
                        f"{pod.path.rpartition('[*]')[0]}[*].{field}"
                        if "[*]" in pod.path
                        else f"{pod.path.rpartition('.*')[0]}.*.{field}",
                        2,
                    )
        if pod.form == "spark":
            holder = value["spec"].get("template") or value["spec"]
            holder |= {"type": "Scala", "memoryOverheadFactor": "0.2"}
        if pod.form == "workflow":
            holder = value["spec"].get("workflowSpec") or value["spec"]
            holder |= {
                "templateDefaults": {"container": {"image": "b"}},
                "podSpecPatch": '{"priority": 5}',
                "volumes": [],
            }
        yield value


def _put(value: dict[str, Any], path: str, item: Any) -> None:
    """Sets the item at the path: in the first item of a list `name[*]`, and in the member `a` of `*`."""
    step, _, rest = path.partition(".")
    name = "a" if step == "*" else step.removesuffix("[*]")
    if step.endswith("[*]"):
        (first,) = value.setdefault(name, [{}])
        if rest:
            _put(first, rest, item)
        else:
            value[name] = [{**item, **first}]
    elif rest:
        _put(value.setdefault(name, {}), rest, item)
    else:
        value[name] = {**item, **value.get(name, {})} if isinstance(item, dict) else item
