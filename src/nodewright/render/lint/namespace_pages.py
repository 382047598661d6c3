"""The pages of NW001 and of the rules NW401 to NW407: ignores; quotas and limit ranges of namespaces."""

from nodewright.render.lint.page import Page, pod, workload

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
    "NW001": Page(
        title="An ignore that keeps nothing back",
        says="{rule} is ignored here, and finds nothing: {what}",
        why=(
            "An ignore that outlives its finding hides the next one. Ignores of rules that did not run (disabled, or "
            "in need of `--node`) are not looked at."
        ),
        mend="Take the comment or the annotation away.",
        bad=pod("""  containers:
  - name: app  # nodewright: ignore NW107 zero on purpose
    image: example.com/app
    resources:
      requests: {cpu: 100m, memory: 64Mi}
"""),
        change=(("  # nodewright: ignore NW107 zero on purpose", ""),),
    ),
    "NW401": Page(
        title="A LimitRange forbids the pod",
        says="LimitRange {limitRange} forbids it: {because}; {refusal}",
        why=(
            "The LimitRanges among the files are applied to the pods of their namespace as the API server does: "
            "defaults first, then bounds. A pod that is forbidden is never made; its controller says so in an event "
            "and tries again."
        ),
        mend="Keep within the bounds, or change them.",
        bad=_RANGE
        + """  - type: Container
    max: {memory: 1Gi}
---
"""
        + workload(
            "Deployment", _app("          requests: {memory: 2Gi}\n          limits: {memory: 2Gi}\n")
        ),
        change=(
            ("requests: {memory: 2Gi}", "requests: {memory: 1Gi}"),
            ("limits: {memory: 2Gi}", "limits: {memory: 1Gi}"),
        ),
    ),
    "NW402": Page(
        title="A LimitRange's default limit is below the request",
        says="LimitRange {limitRange} gives a limit below the request of {value}: {rule}; {refusal}",
        why=(
            "A LimitRange fills in its default limit and its default request independently. A container that requests "
            "more than the default limit, and has no limit of its own, ends up with a limit below its request, which "
            "the API server then refuses."
        ),
        mend="Give the container a limit of its own.",
        bad=_RANGE
        + """  - type: Container
    default: {memory: 512Mi}
---
"""
        + workload("Deployment", _app("          requests: {memory: 1Gi}\n")),
        change=(("requests: {memory: 1Gi}", "requests: {memory: 1Gi}\n          limits: {memory: 1Gi}"),),
    ),
    "NW403": Page(
        title="A quota wants to know what the pod does not say",
        says="quota {quota} wants it: {reason}; {refusal}",
        why=(
            "As soon as a ResourceQuota names cpu or memory, requests or limits, every container of the namespace has "
            "to say how much it needs. LimitRanges among the files fill in their defaults before. (A pod with any "
            "resource at the pod level is let pass, whatever the quota names.)"
        ),
        mend="Write requests and limits, or add a LimitRange with defaults.",
        bad=_QUOTA
        + """    limits.memory: 10Gi
---
"""
        + workload("Deployment", _app("          requests: {cpu: 100m, memory: 1Gi}\n")),
        change=(
            (
                "requests: {cpu: 100m, memory: 1Gi}",
                "requests: {cpu: 100m, memory: 1Gi}\n          limits: {memory: 1Gi}",
            ),
        ),
    ),
    "NW404": Page(
        title="Not even one pod fits into the quota",
        says="quota {quota} has no room for one of them, with nothing else in use: {reason}; {refusal}",
        why=(
            "The pod alone is charged more than the quota allows in all. What a whole set of manifests comes to is "
            "told by `nodewright quota`."
        ),
        mend="Ask for less, or raise the quota.",
        bad=_QUOTA
        + """    requests.memory: 1Gi
---
"""
        + workload("Deployment", _app("          requests: {cpu: 100m, memory: 2Gi}\n")),
        change=(("memory: 2Gi", "memory: 512Mi"),),
    ),
    "NW405": Page(
        title="count/pods counts pods that have finished",
        says="count/pods ({hard}) goes on counting pods that have finished",
        why=(
            "The quota `pods` counts pods that run; `count/pods` counts objects, those of Jobs that are done included. "
            "A namespace with many Jobs fills up with pods that use nothing."
        ),
        mend="Use `pods`; or clean up after Jobs (`ttlSecondsAfterFinished`), and ignore the rule.",
        bad=_QUOTA + '    count/pods: "50"\n',
        change=(('count/pods: "50"', 'pods: "50"'),),
    ),
    "NW406": Page(
        title="An item of a LimitRange that bounds nothing",
        says="items of type {type} bound nothing: there are Container, Pod and PersistentVolumeClaim",
        why="The API server takes any qualified name for a type, and looks at three of them.",
        mend="Write one of the three types.",
        bad=_RANGE
        + """  - type: example.com/Job
    max: {memory: 1Gi}
""",
        change=(("example.com/Job", "Container"),),
    ),
    "NW407": Page(
        title="A maximum for pods demands a limit that nobody gives",
        says="max.{resource} of type Pod refuses every pod in which no container limits {resource}, and nothing gives one a default",
        why=(
            "A maximum is held against limits, and a limit that is missing is refused. Items of type Pod cannot give "
            "defaults; without a default of type Container in the namespace, pods without any limit on the resource "
            "are not made."
        ),
        mend="Add an item of type Container with `default` for the resource.",
        bad=_RANGE
        + """  - type: Pod
    max: {memory: 8Gi}
""",
        change=(("  - type: Pod", "  - type: Container\n    default: {memory: 256Mi}\n  - type: Pod"),),
    ),
}
