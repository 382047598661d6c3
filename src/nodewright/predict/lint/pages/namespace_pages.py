"""The pages of NW001 and of the rules NW401 to NW408: ignores; namespaces, their quotas and limit ranges."""

from nodewright.predict.lint.pages.rule_page import RulePage, pod_manifest, workload_manifest

_RANGE = """apiVersion: v1
kind: LimitRange
metadata:
  name: bounds
spec:
  limits:
"""
_QUOTA = """apiVersion: v1
kind: ResourceQuota
metadata:
  name: team
spec:
  hard:
"""


def _app(amounts: str) -> str:
    return f"""      containers:
      - name: app
        image: example.com/app
        resources:
{amounts}"""


NAMESPACE_PAGES = {
    "NW001": RulePage(
        title="An unused ignore",
        message="{rule} is ignored here but has no finding: {what}",
        rationale=(
            "An ignore without a finding hides the next one. Ignores of rules that did not run (disabled, or without "
            "`--node`) are not checked."
        ),
        remedy="Remove the comment or the annotation.",
        bad=pod_manifest("""  containers:
  - name: app  # nodewright: ignore NW107 zero on purpose
    image: example.com/app
    resources:
      requests: {cpu: 100m, memory: 64Mi}
"""),
        replacements=(("  # nodewright: ignore NW107 zero on purpose", ""),),
    ),
    "NW401": RulePage(
        title="A LimitRange forbids the pod",
        message="LimitRange {limitRange} forbids it: {because}; {refusal}",
        rationale=(
            "The LimitRanges among the files are applied to the pods of their namespace as the API server does: "
            "defaults first, then bounds. A forbidden pod is never created; its controller reports that in an event "
            "and retries."
        ),
        remedy="Keep within the bounds, or change them.",
        bad=_RANGE
        + """  - type: Container
    max: {memory: 1Gi}
---
"""
        + workload_manifest(
            "Deployment", _app("          requests: {memory: 2Gi}\n          limits: {memory: 2Gi}\n")
        ),
        replacements=(
            ("requests: {memory: 2Gi}", "requests: {memory: 1Gi}"),
            ("limits: {memory: 2Gi}", "limits: {memory: 1Gi}"),
        ),
    ),
    "NW402": RulePage(
        title="A LimitRange's default limit is below the request",
        message="LimitRange {limitRange} sets a limit below the request of {value}: {rule}; {refusal}",
        rationale=(
            "A LimitRange fills in its default limit and its default request independently. A container that requests "
            "more than the default limit, and has no limit of its own, ends up with a limit below its request, which "
            "the API server then refuses."
        ),
        remedy="Give the container a limit of its own.",
        bad=_RANGE
        + """  - type: Container
    default: {memory: 512Mi}
---
"""
        + workload_manifest("Deployment", _app("          requests: {memory: 1Gi}\n")),
        replacements=(
            ("requests: {memory: 1Gi}", "requests: {memory: 1Gi}\n          limits: {memory: 1Gi}"),
        ),
    ),
    "NW403": RulePage(
        title="A quota requires requests or limits that the pod does not set",
        message="quota {quota} requires them: {reason}; {refusal}",
        rationale=(
            "As soon as a ResourceQuota names cpu or memory, requests or limits, every container of the namespace has "
            "to set them. LimitRanges among the files fill in their defaults first. (A pod with any pod-level "
            "resource is exempt, whatever the quota names.)"
        ),
        remedy="Write requests and limits, or add a LimitRange with defaults.",
        bad=_QUOTA
        + """    limits.memory: 10Gi
---
"""
        + workload_manifest("Deployment", _app("          requests: {cpu: 100m, memory: 1Gi}\n")),
        replacements=(
            (
                "requests: {cpu: 100m, memory: 1Gi}",
                "requests: {cpu: 100m, memory: 1Gi}\n          limits: {memory: 1Gi}",
            ),
        ),
    ),
    "NW404": RulePage(
        title="A single pod exceeds the quota",
        message="quota {quota} does not admit one such pod, even if nothing else is in use: {reason}; {refusal}",
        rationale=(
            "The pod alone is charged more than the whole quota. `nodewright quota` computes the usage of a set of "
            "manifests."
        ),
        remedy="Request less, or raise the quota.",
        bad=_QUOTA
        + """    requests.memory: 1Gi
---
"""
        + workload_manifest("Deployment", _app("          requests: {cpu: 100m, memory: 2Gi}\n")),
        replacements=(("memory: 2Gi", "memory: 512Mi"),),
    ),
    "NW405": RulePage(
        title="count/pods counts pods that have finished",
        message="count/pods ({hard}) also counts pods that have finished",
        rationale=(
            "The quota `pods` counts running pods; `count/pods` counts objects, pods of finished Jobs included. "
            "A namespace with many Jobs fills up with pods that use nothing."
        ),
        remedy="Use `pods`; or clean up after Jobs (`ttlSecondsAfterFinished`), and ignore the rule.",
        bad=_QUOTA + '    count/pods: "50"\n',
        replacements=(('count/pods: "50"', 'pods: "50"'),),
    ),
    "NW406": RulePage(
        title="A LimitRange item without effect",
        message="items of type {type} have no effect; the types are Container, Pod and PersistentVolumeClaim",
        rationale="The API server accepts any qualified name as a type, but uses only three of them.",
        remedy="Use one of the three types.",
        bad=_RANGE
        + """  - type: example.com/Job
    max: {memory: 1Gi}
""",
        replacements=(("example.com/Job", "Container"),),
    ),
    "NW407": RulePage(
        title="A maximum for pods requires a limit that has no default",
        message="max.{resource} of type Pod refuses every pod in which no container limits {resource}, and no item sets a default",
        rationale=(
            "A maximum is compared with limits, and a missing limit is refused. Items of type Pod cannot set "
            "defaults; without a default of type Container in the namespace, pods without any limit on the resource "
            "are not created."
        ),
        remedy="Add an item of type Container with `default` for the resource.",
        bad=_RANGE
        + """  - type: Pod
    max: {memory: 8Gi}
""",
        replacements=(("  - type: Pod", "  - type: Container\n    default: {memory: 256Mi}\n  - type: Pod"),),
    ),
    "NW408": RulePage(
        title="The namespace is being terminated",
        message="the API server does not create it: {error}",
        rationale=(
            "A Namespace whose status says Terminating accepts changes of the objects that it has, so that they can "
            "be removed, and nothing new. Objects with a uid exist already."
        ),
        remedy="Wait until the namespace is gone and create it again, or use another one.",
        bad="""apiVersion: v1
kind: Namespace
metadata:
  name: default
status:
  phase: Terminating
---
"""
        + pod_manifest("""  containers:
  - name: app
    image: example.com/app
    resources:
      requests: {cpu: 100m, memory: 64Mi}
"""),
        replacements=(("phase: Terminating", "phase: Active"),),
    ),
}
