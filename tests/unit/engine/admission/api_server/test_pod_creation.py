"""The order in which the API server makes a pod: defaults, plugins, validation, limit ranges."""

import pytest
from msgspec.structs import replace

from nodewright.documents.formats.manifests import workloads_from
from nodewright.documents.formats.workloads import Workload
from nodewright.model.errors import InputError
from nodewright.testing.objects import amounts

BOUNDS = "{apiVersion: v1, kind: LimitRange, metadata: {name: l}, spec: {limits: [{type: %s}]}}\n"
POD = "{apiVersion: v1, kind: Pod, metadata: {name: a}, spec: {%scontainers: [{name: a, image: a, resources: %s}]}}\n"
OWNER = (
    "{apiVersion: apps/v1, kind: %s, metadata: {name: web}, spec: {replicas: 2, selector: {matchLabels: {a: b}}, "
    "template: {metadata: {labels: {a: b}}, spec: {containers: [{name: a, image: a, resources: %s}]}}}}\n"
)
QUOTA = "{apiVersion: v1, kind: ResourceQuota, metadata: {name: q}, spec: {hard: {%s}}}\n"
DEFAULT = BOUNDS % "Container, default: {memory: 256Mi}"
TOO_MUCH = (
    'spec.containers[0].resources.requests: Invalid value: "1Gi": '
    "must be less than or equal to memory limit of 256Mi"
)


def created(*texts: str) -> tuple[Workload, ...]:
    return workloads_from("---\n".join(texts).encode(), "f.yaml").workloads


def refusal(workload: Workload) -> tuple[str, str] | None:
    return None if workload.refusal is None else workload.refusal.kubelet()


def test_defaults_of_limit_ranges_come_before_validation() -> None:
    (pod,) = created(POD % ("", "{requests: {memory: 1Gi}}"), DEFAULT)
    assert refusal(pod) == ("Invalid", f'Pod "a" is invalid: {TOO_MUCH}')
    assert refusal(created(POD % ("", "{requests: {memory: 128Mi}}"), DEFAULT)[0]) is None


def test_since_1_37_defaults_of_limit_ranges_come_before_those_of_the_pod_level() -> None:
    bounds = BOUNDS % "Container, default: {cpu: 500m}, defaultRequest: {cpu: 500m}"
    texts = (POD % ("resources: {requests: {cpu: 600m, memory: 1Gi}}, ", "{}"), bounds)
    (pod,) = created(*texts)
    level = pod.pod.spec.resources
    assert level is not None
    assert level.limits == amounts("cpu=600m")
    assert created(texts[0])[0].pod.spec.resources == replace(level, limits={})


def test_the_pods_of_a_deployment_are_refused_and_the_deployment_is_not() -> None:
    (owner,) = created(OWNER % ("Deployment", "{requests: {memory: 1Gi}}"), DEFAULT)
    assert refusal(owner) == ("FailedCreate", f'Error creating: Pod "web-0" is invalid: {TOO_MUCH}')


CONFLICTING = {
    "volumes: [{name: v, image: {}}]": "spec.volumes[0].image.reference: Required value",
    "nodeName: node-1, schedulingGates: [{name: a}]": (
        "spec.nodeName: Forbidden: cannot be set until all schedulingGates have been cleared"
    ),
    f"volumes: [{{name: {'v' * 63}, ephemeral: {{volumeClaimTemplate: {{spec: {{accessModes: [ReadWriteOnce], "
    f"resources: {{requests: {{storage: 1Gi}}}}}}}}}}}}]": "spec.volumes[0].name",
}


@pytest.mark.parametrize("fields", CONFLICTING)
def test_a_template_may_be_valid_though_its_pods_are_not(fields: str) -> None:
    owner = (OWNER % ("Deployment", "{}")).replace("spec: {containers", f"spec: {{{fields}, containers")
    if "ephemeral" in fields:
        owner = owner.replace("name: web", f"name: {'w' * 200}")
    failed = refusal(created(owner)[0])
    assert failed is not None
    assert failed[0] == "FailedCreate"
    assert CONFLICTING[fields] in failed[1]


def test_a_template_may_have_a_profile_that_its_pods_may_not() -> None:
    annotated = "metadata: {labels: {a: b}, annotations: {container.apparmor.security.beta.kubernetes.io/a: unconfined}}"
    owner = (OWNER % ("Deployment", "{}")).replace("metadata: {labels: {a: b}}", annotated)
    owner = owner.replace(
        "image: a,", "image: a, securityContext: {appArmorProfile: {type: RuntimeDefault}},"
    )
    failed = refusal(created(owner)[0])
    assert failed is not None
    assert "appArmorProfile.type: Forbidden" in failed[1]


def test_a_stateful_set_reports_the_failure_in_its_own_words() -> None:
    (owner,) = created(OWNER % ("StatefulSet", "{requests: {memory: 1Gi}}"), DEFAULT)
    assert refusal(owner) == (
        "FailedCreate",
        f'create Pod web-0 in StatefulSet web failed error: Pod "web-0" is invalid: {TOO_MUCH}',
    )


def test_a_pod_level_amount_is_compared_with_the_containers_defaults() -> None:
    bounds = BOUNDS % "Container, defaultRequest: {cpu: 500m}"
    (pod,) = created(POD % ("resources: {requests: {cpu: 100m}}, ", "{}"), bounds)
    assert refusal(pod) == (
        "Invalid",
        (
            'Pod "a" is invalid: spec.resources.requests[cpu]: Invalid value: "100m": '
            "must be greater than or equal to aggregate container requests of 500m"
        ),
    )


def test_defaults_of_limit_ranges_can_make_a_pod_valid() -> None:
    huge = POD % ("", "{limits: {hugepages-2Mi: 2Mi}}")
    with pytest.raises(InputError, match="HugePages require cpu or memory"):
        created(huge)
    assert refusal(created(huge, DEFAULT)[0]) is None


def test_a_pod_that_is_invalid_with_and_without_limit_ranges_is_a_fault() -> None:
    with pytest.raises(InputError) as error:
        created(POD % ("", "{limits: {hugepages-2Mi: 3Mi}}"), DEFAULT)
    assert {fault.path for fault in error.value.faults} == {
        "spec.containers[0].resources.limits[hugepages-2Mi]",
        "spec.containers[0].resources.requests[hugepages-2Mi]",
    }


def test_a_limit_range_forbids_after_validation() -> None:
    (pod,) = created(POD % ("", "{requests: {cpu: 2}}"), BOUNDS % "Container, max: {cpu: 1}")
    assert refusal(pod) is not None
    (pod,) = created(POD % ("", "{requests: {cpu: 1}, limits: {cpu: 2}}"), BOUNDS % "Pod, max: {cpu: 1}")
    assert refusal(pod) == (
        "Forbidden",
        'pods "a" is forbidden: maximum cpu usage per Pod is 1, but limit is 2',
    )


def test_a_null_amount_is_zero() -> None:
    (pod,) = created(POD % ("", "{requests: {cpu: 1, memory: null}}"))
    assert str(pod.pod.spec.containers[0].resources.requests["memory"]) == "0"
    with pytest.raises(InputError, match="must be less than or equal to memory limit of 0"):
        created(POD % ("", "{requests: {memory: 1Mi}, limits: {memory: null}}"))


def test_amounts_are_rounded_before_they_are_compared() -> None:
    rounded = "{requests: {cpu: 1.00009}, limits: {cpu: 1.00001}}"
    assert refusal(created(POD % ("", rounded))[0]) is None
    assert refusal(created(OWNER % ("Deployment", rounded))[0]) is None


def test_a_template_gets_no_requests_from_its_limits() -> None:
    template = "{limits: {nvidia.com/gpu: 1}, requests: {nvidia.com/gpu: 1}}"
    assert refusal(created(OWNER % ("Deployment", template))[0]) is None
    spec = "resources: {limits: {cpu: 1}}, containers: [{name: a, image: a, resources: {limits: {cpu: 2}}}]"
    owner = OWNER % ("Deployment", "{}")
    owner = owner.replace("containers: [{name: a, image: a, resources: {}}]", spec)
    with pytest.raises(InputError) as error:
        created(owner)
    assert [fault.path for fault in error.value.faults] == [
        "spec.template.spec.resources.containers[0][cpu].limits"
    ]


def test_the_objects_that_took_part_are_named() -> None:
    quota = QUOTA % "requests.memory: 1Gi"
    (pod,) = created(POD % ("", "{requests: {memory: 1Mi}}"), DEFAULT, quota)
    assert pod.applied == ("LimitRange l", "ResourceQuota q")


def exceeded(kind: str, name: str, resource: str) -> str:
    amounts = f"requested: {resource}=1, used: {resource}=0, limited: {resource}=0"
    return f'{kind} "{name}" is forbidden: exceeded quota: q, {amounts}'


@pytest.mark.parametrize(
    ("hard", "wanted"),
    [
        ("pods: 0", ("FailedCreate", f"Error creating: {exceeded('pods', 'web-0', 'pods')}")),
        ("count/deployments.apps: 0", ("Forbidden", exceeded("deployments.apps", "web", "count/deployments.apps"))),
        ("count/replicasets.apps: 0", ("Forbidden", exceeded("replicasets.apps", "web-", "count/replicasets.apps"))),
        ("pods: 1", None),
    ],
)  # fmt: skip
def test_children_of_a_refused_parent_do_not_exist(hard: str, wanted: tuple[str, str] | None) -> None:
    owner, other = created(OWNER % ("Deployment", "{}"), POD % ("", "{}"), QUOTA % f"{hard}, configmaps: 5")
    assert refusal(owner) == wanted
    # Only pods that exist are charged.
    assert (refusal(other) is None) is hard.startswith("count")


def test_quotas_charge_what_the_runtime_class_adds() -> None:
    runtime = "{apiVersion: node.k8s.io/v1, kind: RuntimeClass, metadata: {name: vm}, handler: vm, overhead: {podFixed: {cpu: 250m}}}\n"
    pod = POD % ("runtimeClassName: vm, ", "{requests: {cpu: 100m}}")
    (refused,) = created(pod, runtime, QUOTA % "requests.cpu: 349m")
    amounts = "requested: requests.cpu=350m, used: requests.cpu=0, limited: requests.cpu=349m"
    assert refusal(refused) == ("Forbidden", f'pods "a" is forbidden: exceeded quota: q, {amounts}')
    assert refusal(created(pod, runtime, QUOTA % "requests.cpu: 350m")[0]) is None


RUNTIME = "{apiVersion: node.k8s.io/v1, kind: RuntimeClass, metadata: {name: vm}, handler: vm}\n"
UNSET = "pod rejected: Pod Overhead set without corresponding RuntimeClass defined Overhead"
UNEQUAL = "pod rejected: Pod's Overhead doesn't match RuntimeClass's defined Overhead"


@pytest.mark.parametrize(
    ("overhead", "pod_overhead", "error"),
    [
        ("", "", ""),
        ("", "overhead: null, ", ""),
        ("", "overhead: {}, ", UNSET),
        ("", "overhead: {cpu: null}, ", UNSET),
        ("overhead: {}", "overhead: {}, ", ""),
        ("overhead: {}", "overhead: {cpu: 1}, ", UNEQUAL),
        ("overhead: {podFixed: {}}", "", ""),
        ("overhead: {podFixed: {cpu: 1}}", "overhead: {}, ", ""),
        ("overhead: {podFixed: {cpu: 1}}", "overhead: {cpu: 1000m}, ", ""),
        ("overhead: {podFixed: {cpu: 1}}", "overhead: {cpu: 0}, ", UNEQUAL),
    ],
)
def test_overhead_needs_a_runtime_class_that_sets_it(overhead: str, pod_overhead: str, error: str) -> None:
    """The verdicts of a kube-apiserver v1.36.2."""
    runtime = f"{RUNTIME[:-2]}, {overhead}}}\n"
    (pod,) = created(POD % (f"runtimeClassName: vm, {pod_overhead}", "{}"), runtime)
    assert refusal(pod) == (("Forbidden", f'pods "a" is forbidden: {error}') if error else None)


def test_an_empty_overhead_is_refused_without_a_runtime_class() -> None:
    (pod,) = created(POD % ("overhead: {}, ", "{}"))
    assert refusal(pod) == ("Forbidden", f'pods "a" is forbidden: {UNSET}')


def test_nothing_new_is_created_in_a_namespace_that_is_being_terminated() -> None:
    ending = "{apiVersion: v1, kind: Namespace, metadata: {name: default}, status: {phase: Terminating}}\n"
    reason = "unable to create new content in namespace default because it is being terminated"
    pod, owner = created(POD % ("", "{}"), OWNER % ("Deployment", "{}"), ending)
    assert refusal(pod) == ("Forbidden", f'pods "a" is forbidden: {reason}')
    assert refusal(owner) == ("Forbidden", f'deployments.apps "web" is forbidden: {reason}')
    existing = (POD % ("", "{}")).replace("name: a}", "name: a, uid: u}", 1)
    assert refusal(created(existing, ending)[0]) is None
    active = ending.replace("Terminating", "Active")
    assert refusal(created(POD % ("", "{}"), active)[0]) is None
    elsewhere = ending.replace("name: default", "name: other")
    assert refusal(created(POD % ("", "{}"), elsewhere)[0]) is None


def test_pods_of_stateful_sets_have_the_host_names_of_their_set() -> None:
    owner = OWNER % ("StatefulSet", "{}")
    (accepted,) = created(
        owner.replace("spec: {containers", "spec: {hostname: a.b, subdomain: -c, containers")
    )
    assert refusal(accepted) is None
    assert (accepted.pod.spec.hostname, accepted.pod.spec.subdomain) == ("web-0", "")
    with pytest.raises(InputError, match=r'spec.serviceName: Invalid value: "a\.b": must not'):
        created(owner.replace("replicas: 2", "replicas: 2, serviceName: a.b"))


STATIC = (
    "{apiVersion: v1, kind: Pod, metadata: {name: a, namespace: default, annotations: {kubernetes.io/config.source: file}}, "
    "spec: {%s, runtimeClassName: r, containers: [{name: a, image: a, resources: {requests: {memory: 1.5Gi}}}]}}\n"
)
CLUSTER = (
    DEFAULT,
    QUOTA % "pods: 0",
    "{apiVersion: scheduling.k8s.io/v1, kind: PriorityClass, metadata: {name: c}, value: 5, globalDefault: true}\n",
    "{apiVersion: node.k8s.io/v1, kind: RuntimeClass, metadata: {name: r}, handler: r, overhead: {podFixed: {cpu: 1}}}\n",
    "{apiVersion: v1, kind: Namespace, metadata: {name: default}, status: {phase: Terminating}}\n",
)


@pytest.mark.parametrize(
    "field", ["priorityClassName: system-node-critical", "priorityClassName: absent", "overhead: {cpu: 2}"]
)
def test_a_static_pod_passes_no_plugin_of_the_api_server(field: str) -> None:
    text = STATIC % field
    (pod,) = created(text, *CLUSTER)
    (alone,) = created(text)
    assert (pod.pod, pod.refusal, pod.applied, pod.not_judged) == (alone.pod, None, (), ())
    spec = pod.pod.spec
    assert (spec.priority, spec.preemption_policy, spec.tolerations) == (None, None, ())
    amounts = spec.containers[0].resources
    assert (str(amounts.requests["memory"]), amounts.requests["memory"].as_int64(), amounts.limits) == (
        "1536Mi", None, {},
    )  # fmt: skip


def test_a_static_pod_keeps_its_priority_and_preempts_by_it() -> None:
    (pod,) = created(STATIC % "priority: 2000001000, priorityClassName: system-node-critical")
    assert pod.pod.spec.priority == 2000001000
    with pytest.raises(InputError, match=r"spec\.restartPolicy"):
        created(STATIC % "restartPolicy: Sometimes")
