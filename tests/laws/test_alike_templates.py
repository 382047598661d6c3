"""Templates that share their validation are refused and accepted as each is alone."""

import json
from typing import Any

from hypothesis import given
from hypothesis import strategies as st

from nodewright.documents.formats.manifests import workloads_from
from nodewright.model.errors import InputError

IMAGES = st.sampled_from(["web:1", "web:2", " web", "", None])
CONTAINERS = st.fixed_dictionaries(
    {"name": st.sampled_from(["main", "main", "Main"])},
    optional={
        "image": IMAGES,
        "env": st.sampled_from([[], [{"name": "A"}], [{"name": "A=B"}], None]),
        "resources": st.sampled_from(
            [{"limits": {"cpu": "1"}}, {"requests": {"cpu": "2"}, "limits": {"cpu": "1"}}, None]
        ),
    },
)
SPECS = st.fixed_dictionaries(
    {"containers": st.lists(CONTAINERS, min_size=1, max_size=2)},
    optional={
        "hostname": st.sampled_from(["web", "Web"]),
        "restartPolicy": st.sampled_from(["Always", "OnFailure", "Sometimes"]),
        "nodeName": st.sampled_from(["a", "b", "B!"]),
        "ephemeralContainers": st.just([{"name": "debug", "image": "web:1"}]),
    },
)
OBJECTS = st.builds(
    lambda kind, name, labels, spec: {
        "apiVersion": "batch/v1" if kind == "Job" else "apps/v1",
        "kind": kind,
        "metadata": {"name": name},
        "spec": {
            **({} if kind == "Job" else {"selector": {"matchLabels": {"app": "web"}}}),
            **({"serviceName": "web"} if kind == "StatefulSet" else {}),
            "template": {"metadata": {"labels": labels}, "spec": spec},
        },
    },
    st.sampled_from(["Deployment", "Deployment", "DaemonSet", "StatefulSet", "Job"]),
    st.sampled_from(["web", "shop"]),
    st.sampled_from([{"app": "web"}, {"app": "web", "tier": "a b"}, {"app": "shop"}]),
    SPECS,
)


def faults(objects: list[dict[str, Any]]) -> list[tuple[str, str, str, str]]:
    try:
        workloads_from("---\n".join(f"{json.dumps(item)}\n" for item in objects).encode(), "file")
    except InputError as error:
        return [(fault.path, fault.error, str(fault.value), fault.rule) for fault in error.faults]
    return []


CHANGES = st.sampled_from(
    [
        ("image", "web:2"),
        ("image", " web"),
        ("name", "Main"),
        ("env", [{"name": "A=B"}]),
        ("resources", {"requests": {"cpu": "2"}, "limits": {"cpu": "1"}}),
    ]
)


@given(st.lists(OBJECTS, min_size=1, max_size=3), st.lists(st.tuples(st.integers(0, 2), CHANGES), max_size=6))
def test_a_template_has_the_faults_that_it_has_alone(
    objects: list[dict[str, Any]], again: list[tuple[int, tuple[str, Any]]]
) -> None:
    """The objects, and some of them again with a change, most often another image."""
    first = len(objects)
    for number, (field, value) in again:
        item = json.loads(json.dumps(objects[number % first]))
        item["spec"]["template"]["spec"]["containers"][0][field] = value
        objects.append(item)
    assert faults(objects) == [fault for item in objects for fault in faults([item])]
