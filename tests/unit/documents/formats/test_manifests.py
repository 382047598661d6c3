from pathlib import Path

import pytest

from nodewright.documents.formats.manifests import load_workloads, workloads_from
from nodewright.documents.formats.object_location import object_label
from nodewright.documents.formats.workloads import LoadedWorkloads
from nodewright.model.errors import InputError

ROOT = Path(__file__).parents[4]
EXAMPLES = ROOT / "examples" / "manifests"
GOLDEN = ROOT / "tests" / "golden" / "errors"


def loaded(text: str, namespace: str = "default") -> LoadedWorkloads:
    return workloads_from(text.encode(), "f.yaml", namespace)


def refusal(text: str) -> list[str]:
    with pytest.raises(InputError) as refused:
        loaded(text)
    return [str(fault) for fault in refused.value.faults]


def pods(result: LoadedWorkloads) -> list[str]:
    return [f"{workload.kind} {workload.pod.full_name}" for workload in result.workloads]


POD = "apiVersion: v1\nkind: Pod\nmetadata: {name: %s}\nspec: {containers: [{name: main}]}\n"

# What each example holds: pods and how many of them, then what makes none.
HELD = [
    ("database.yaml", ["StatefulSet default/ledger-1 x3"], {"PodDisruptionBudget": 1}),
    ("dpdk-forwarder.yaml", ["Pod dataplane/forwarder x1"], {}),
    ("gpu-training.yaml", ["Job default/train-0 x4"], {"Service": 1}),
    (
        "ingress-controller.yaml",
        ["DaemonSet ingress/edge-proxy-0 xNone", "Job ingress/edge-proxy-admission-create-0 x1"],
        {
            "ClusterRole": 1,
            "ClusterRoleBinding": 1,
            "ConfigMap": 1,
            "IngressClass": 1,
            "Namespace": 1,
            "Service": 1,
            "ServiceAccount": 1,
            "ValidatingWebhookConfiguration": 1,
        },
    ),
    (
        "list.json",
        ["Pod kube-system/resolver-6d4b75cb6d-7xk2p x1", "Pod default/batch-1 x1"],
        {"Service": 1},
    ),
    ("mesh-checkout.yaml", ["Deployment shop/checkout-0 x3"], {}),
    ("nightly-backup.yaml", ["CronJob default/backup-0 x1"], {}),
    (
        "crds",
        ["Deployment default/widget-operator-0 x1"],
        {"CustomResourceDefinition": 1, "Job.batch.volcano.example": 1, "Widget": 2},
    ),
]


@pytest.mark.parametrize(("name", "held", "skipped"), HELD)
def test_manifests_as_projects_ship_them_load_unchanged(
    name: str, held: list[str], skipped: dict[str, int]
) -> None:
    result = load_workloads([str(EXAMPLES / name)])
    assert [
        f"{workload.kind} {workload.pod.full_name} x{workload.replicas}" for workload in result.workloads
    ] == held
    assert dict(result.skipped) == skipped
    assert result.warnings == ()


def test_every_example_is_tested() -> None:
    assert {path.name for path in EXAMPLES.iterdir()} == {name for name, _, _ in HELD}


def test_subdirectories_are_read_only_if_recursive() -> None:
    flat = load_workloads([str(EXAMPLES)])
    deep = load_workloads([str(EXAMPLES)], recursive=True)
    assert len(deep.workloads) == len(flat.workloads) + 1


GOLDENS = sorted(path.name for path in GOLDEN.glob("*.yaml"))


@pytest.mark.parametrize("name", GOLDENS)
def test_all_faults_of_a_file_are_reported_at_once(name: str) -> None:
    with pytest.raises(InputError) as refused:
        workloads_from((GOLDEN / name).read_bytes(), name)
    assert f"{refused.value}\n" == (GOLDEN / name).with_suffix(".txt").read_text("utf-8")


def test_there_are_golden_errors() -> None:
    assert len(GOLDENS) >= 4


LISTS = [
    "apiVersion: v1\nkind: List\nitems:\n- {apiVersion: v1, kind: Pod, metadata: {name: a}, spec: &s {containers: [{name: b}]}}\n",
    "apiVersion: v1\nkind: PodList\nitems:\n- {metadata: {name: a}, spec: {containers: [{name: b}]}}\n",
    (
        "apiVersion: v1\nkind: List\nitems:\n- apiVersion: v1\n  kind: PodList\n  items: [{metadata: {name: a}, "
        "spec: {containers: [{name: b}]}}]\n"
    ),
]


@pytest.mark.parametrize("text", LISTS)
def test_lists_are_opened(text: str) -> None:
    assert pods(loaded(text)) == ["Pod default/a"]


def test_faults_in_a_list_name_the_item() -> None:
    text = "apiVersion: v1\nkind: PodList\nitems:\n- spec: {containers: [{name: b, x: 1}]}\n"
    assert refusal(text) == [
        "f.yaml:4:3, Pod: metadata.name: Required value: name or generateName is required",
        "f.yaml:4:33, Pod: spec.containers[0].x: unknown field",
    ]


def test_the_namespace_given_is_for_objects_that_name_none() -> None:
    text = POD % "a" + "---\n" + POD % "b, namespace: mine"
    assert pods(loaded(text, "given")) == ["Pod given/a", "Pod mine/b"]


def test_a_name_may_be_generated() -> None:
    (workload,) = loaded(POD.replace("name: %s", "generateName: run-")).workloads
    assert (workload.name, workload.pod.full_name) == ("run-0", "default/run-0")


def test_duplicate_pods_get_unique_uids() -> None:
    result = loaded(POD % "a" + "---\n" + POD % "a")
    first, second = result.workloads
    assert first.pod.uid != second.pod.uid
    assert result.warnings == (
        "default/a is defined more than once; each definition counts as a separate pod",
    )


NO_OBJECTS = [
    ("[]", ["f.yaml:1:1: an object is a mapping with apiVersion and kind"]),
    ("just text", ["f.yaml:1:1: an object is a mapping with apiVersion and kind"]),
    ("a: 1", ["f.yaml:1:1: apiVersion: Object 'apiVersion' is missing", "f.yaml:1:1: kind: Object 'Kind' is missing"]),
    ("apiVersion: 1\nkind: Pod", ["f.yaml:1:1: apiVersion: Object 'apiVersion' is missing"]),
    ("apiVersion: v1\nkind: ''", ["f.yaml:2:1: kind: Object 'Kind' is missing"]),
    ("apiVersion: extensions/v1beta1\nkind: Deployment\nmetadata: {name: web}",
     [('f.yaml:1:1, Deployment default/web: apiVersion: no matches for kind "Deployment" in version '
      '"extensions/v1beta1"; Kubernetes serves apps/v1')]),
    ("apiVersion: v2\nkind: Pod",
     ['f.yaml:1:1, Pod: apiVersion: no matches for kind "Pod" in version "v2"; Kubernetes serves v1']),
]  # fmt: skip


@pytest.mark.parametrize(("text", "faults"), NO_OBJECTS)
def test_documents_that_are_not_kubernetes_objects_are_rejected(text: str, faults: list[str]) -> None:
    assert refusal(text) == faults


def test_kinds_of_other_groups_are_skipped_with_their_group() -> None:
    result = loaded("apiVersion: example.org/v1\nkind: Pod\n---\napiVersion: v1\nkind: Secret\n")
    assert dict(result.skipped) == {"Pod.example.org": 1, "Secret": 1}


CLASSES = """
apiVersion: scheduling.k8s.io/v1
kind: PriorityClass
metadata: {name: low}
value: 10
globalDefault: true
---
apiVersion: scheduling.k8s.io/v1
kind: PriorityClass
metadata: {name: high}
value: 1000
preemptionPolicy: Never
---
"""


def test_priority_classes_count_in_any_file() -> None:
    urgent = POD.replace("spec: {", "spec: {priorityClassName: high, ")
    result = loaded(urgent % "a" + "---\n" + POD % "b" + "---" + CLASSES)
    assert [
        (workload.pod.spec.priority, workload.pod.spec.preemption_policy) for workload in result.workloads
    ] == [
        (1000, "Never"),
        (10, "PreemptLowerPriority"),
    ]


def test_an_unknown_priority_class_is_a_warning_and_not_judged() -> None:
    written = loaded(POD.replace("spec: {", "spec: {priorityClassName: high, priority: 5, ") % "a")
    assert written.warnings == (
        'default/a: no PriorityClass with name "high" is known; priority 5 is assumed',
    )
    assert [unknown.what for unknown in written.workloads[0].not_judged] == ["spec.priorityClassName"]


def test_a_pod_that_an_api_server_has_stored_keeps_what_its_classes_gave_it() -> None:
    stored = POD.replace("name: %s", "name: a, uid: u-1")
    result = loaded(stored.replace("spec: {", "spec: {priorityClassName: high, priority: 5, "))
    assert (result.warnings, result.workloads[0].not_judged) == ((), ())
    assert result.workloads[0].refusal is None


COMPUTED = "must not be provided in pod spec; priority admission controller computed"
CONTRADICTIONS = [
    ("priority: 7", f"the integer value of priority (7) {COMPUTED} 10 from the given PriorityClass name"),
    ("preemptionPolicy: Never",
     f"the string value of PreemptionPolicy (Never) {COMPUTED} PreemptLowerPriority from the given PriorityClass name"),
    ("priorityClassName: high, preemptionPolicy: PreemptLowerPriority",
     f"the string value of PreemptionPolicy (PreemptLowerPriority) {COMPUTED} Never from the given PriorityClass name"),
    ("overhead: {cpu: 1}", "pod rejected: Pod Overhead set without corresponding RuntimeClass defined Overhead"),
    ("runtimeClassName: vm, overhead: {cpu: 1}",
     "pod rejected: Pod's Overhead doesn't match RuntimeClass's defined Overhead"),
]  # fmt: skip


@pytest.mark.parametrize(("fields", "error"), CONTRADICTIONS)
def test_a_pod_that_contradicts_its_classes_is_refused(fields: str, error: str) -> None:
    pod = POD.replace("spec: {", f"spec: {{{fields}, ") % "a"
    (workload,) = loaded(pod + "---" + CLASSES + VM).workloads
    assert workload.refusal is not None
    assert workload.refusal.kubelet() == ("Forbidden", f'pods "a" is forbidden: {error}')


BAD_CLASSES = [
    ("name: system-mine}\nvalue: 1",
     [("f.yaml:3:12, PriorityClass system-mine: metadata.name: Forbidden: priority class names with 'system-' "
      "prefix are reserved for system use only")]),
    ("name: huge}\nvalue: 1000000001",
     [("f.yaml:4:1, PriorityClass huge: value: Forbidden: maximum allowed value of a user defined priority "
      "is 1000000000")]),
]  # fmt: skip


@pytest.mark.parametrize(("rest", "faults"), BAD_CLASSES)
def test_priority_classes_are_checked(rest: str, faults: list[str]) -> None:
    assert refusal(f"apiVersion: scheduling.k8s.io/v1\nkind: PriorityClass\nmetadata: {{{rest}\n") == faults


VM = """
apiVersion: node.k8s.io/v1
kind: RuntimeClass
metadata: {name: vm}
handler: vm
overhead: {podFixed: {cpu: 250m}}
"""


def test_runtime_classes_count_in_any_file() -> None:
    loaded_workloads = loaded(POD.replace("spec: {", "spec: {runtimeClassName: vm, ") % "a" + "---" + VM)
    assert [str((workload.pod.spec.overhead or {})["cpu"]) for workload in loaded_workloads.workloads] == [
        "250m"
    ]
    assert not loaded_workloads.skipped


def test_an_unknown_runtime_class_is_a_warning() -> None:
    unknown = POD.replace("spec: {", "spec: {runtimeClassName: gone, ") % "a"
    assert loaded(unknown).warnings == (
        'default/a: no RuntimeClass with name "gone" is known; what it adds is not counted',
    )


def test_runtime_classes_are_checked() -> None:
    scheduling = "scheduling: {tolerations: [{key: a, operator: Is}], nodeSelector: {a b: c}}"
    faults = refusal(VM.replace("250m", "-1").replace("handler: vm", scheduling))
    assert [fault.split(": ")[1] for fault in faults] == [
        "handler",
        "scheduling.tolerations[0].operator",
        "scheduling.nodeSelector",
        "overhead.podFixed[cpu]",
    ]


def test_a_runtime_class_has_each_toleration_once() -> None:
    scheduling = (
        "handler: Vm, scheduling: {tolerations: [{key: a, operator: Exists}, {key: a, operator: Exists}]}"
    )
    faults = refusal(VM.replace("handler: vm", scheduling.replace(", s", "\ns")))
    assert ["handler: Invalid value" in faults[0], len(faults)] == [True, 2]
    shown = '{"Key":"a","Operator":"Exists","Value":"","Effect":"","TolerationSeconds":null}'
    assert faults[1].endswith(f"scheduling.tolerations[1]: Duplicate value: {shown}")


@pytest.mark.parametrize(
    ("policy", "fault"),
    [
        ("''", "preemptionPolicy: Required value"),
        (
            "Perhaps",
            'preemptionPolicy: Unsupported value: "Perhaps": supported values: "PreemptLowerPriority", "Never"',
        ),
    ],
)
def test_the_preemption_policy_of_a_priority_class_is_checked(policy: str, fault: str) -> None:
    text = f"{{apiVersion: scheduling.k8s.io/v1, kind: PriorityClass, metadata: {{name: p}}, value: 5, preemptionPolicy: {policy}}}"
    assert [each.partition(": ")[2] for each in refusal(text)] == [fault]


def test_the_old_name_of_a_service_account_is_checked() -> None:
    (fault,) = refusal((POD % "a").replace("containers:", "serviceAccount: A_b, containers:"))
    assert 'spec.serviceAccountName: Invalid value: "A_b": ' in fault


def test_faults_of_all_files_are_reported_together(tmp_path: Path) -> None:
    (tmp_path / "a.yaml").write_text("[")
    (tmp_path / "b.yaml").write_text("kind: Pod")
    (tmp_path / "c.yaml").symlink_to(tmp_path / "a.yaml")
    with pytest.raises(InputError) as refused:
        load_workloads([str(tmp_path), "/proc/self/mem"])
    assert [fault.source.rpartition("/")[2].split(":")[0] for fault in refused.value.faults] == [
        "a.yaml",
        "b.yaml",
        "c.yaml",
        "mem",
    ]


def test_the_size_limit_can_be_changed(tmp_path: Path) -> None:
    path = tmp_path / "a.yaml"
    path.write_text(POD % "a")
    with pytest.raises(InputError, match="bytes of YAML exceed the limit of 20"):
        load_workloads([str(path)], max_bytes=20)
    assert load_workloads([str(path)], max_bytes=2000).workloads


@pytest.mark.parametrize(
    ("version", "kind", "label"),
    [
        ("resource.k8s.io/v1", "DeviceClass", "DeviceClass web"),
        ("karpenter.sh/v1", "NodePool", "NodePool web"),
        ("storagemigration.k8s.io/v1beta1", "StorageVersionMigration", "StorageVersionMigration web"),
        ("v1", "Namespace", "Namespace web"),
        ("example.com/v1", "DeviceClass", "DeviceClass shop/web"),
        ("resource.k8s.io/v1", "ResourceClaim", "ResourceClaim shop/web"),
    ],
)
def test_messages_name_no_namespace_of_cluster_wide_kinds(version: str, kind: str, label: str) -> None:
    assert object_label({"metadata": {"name": "web", "namespace": "shop"}}, version, kind, "n") == label
