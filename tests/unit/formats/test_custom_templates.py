"""The pods of custom resources: each kind of the table, kinds that users add, and kinds that are named."""

from typing import Any

import pytest
import yaml

from nodewright.errors import InputError
from nodewright.formats.custom_kinds import parsed_template_path
from nodewright.formats.custom_templates import custom_pods, known_kinds, template_paths
from nodewright.formats.documents import InputFile
from nodewright.formats.manifests import ManifestLoader
from nodewright.formats.object_selection import ObjectSelection
from nodewright.formats.workloads import LoadedWorkloads

SPEC = "{spec: {containers: [{name: a, image: x, resources: {requests: {cpu: 2}}}]}}"


def custom(version: str, kind: str, spec: str) -> str:
    return f"apiVersion: {version}\nkind: {kind}\nmetadata: {{name: job}}\nspec: {spec}\n"


def loaded(text: str, *added: str) -> LoadedWorkloads:
    kinds = tuple(map(parsed_template_path, added))
    loader = ManifestLoader("default", selection=ObjectSelection(custom_kinds=kinds))
    loader.add_file(InputFile("test.yaml", text.encode()))
    return loader.result()


def pods(text: str, *added: str) -> dict[str, int | None]:
    return {workload.pod.metadata.name: workload.replicas for workload in loaded(text, *added).workloads}


KUBEFLOW = {
    "PyTorchJob": "pytorchReplicaSpecs",
    "TFJob": "tfReplicaSpecs",
    "MPIJob": "mpiReplicaSpecs",
    "XGBoostJob": "xgbReplicaSpecs",
    "PaddleJob": "paddleReplicaSpecs",
    "JAXJob": "jaxReplicaSpecs",
    "MXJob": "mxReplicaSpecs",
}
RAY = f"headGroupSpec: {{template: {SPEC}}}, workerGroupSpecs: [{{groupName: gpu, replicas: 3, numOfHosts: 2, template: {SPEC}}}]"
LWS = f"{{replicas: 2, leaderWorkerTemplate: {{size: 4, workerTemplate: {SPEC}%s}}}}"
WORKFLOW = "templates: [{name: main, steps: [[]]}, {name: a, container: {image: x}}, {name: b, script: {image: x, source: ls}}]"
CASES: dict[str, tuple[str, dict[str, int]]] = {
    "Rollout": (custom("argoproj.io/v1alpha1", "Rollout", f"{{replicas: 3, template: {SPEC}}}"), {"job-0": 3}),
    "Volcano Job": (
        custom("batch.volcano.sh/v1alpha1", "Job", f"{{tasks: [{{name: ps, replicas: 2, template: {SPEC}}}, {{name: w, template: {SPEC}}}]}}"),
        {"job-ps-0": 2, "job-w-0": 1},
    ),
    "JobSet": (
        custom(
            "jobset.x-k8s.io/v1alpha2",
            "JobSet",
            f"{{replicatedJobs: [{{name: w, replicas: 2, template: {{spec: {{parallelism: 4, template: {SPEC}}}}}}}]}}",
        ),
        {"job-0": 8},
    ),
    "LeaderWorkerSet": (custom("leaderworkerset.x-k8s.io/v1", "LeaderWorkerSet", LWS % ""), {"job-0": 8}),
    "LeaderWorkerSet with a leader": (
        custom("leaderworkerset.x-k8s.io/v1", "LeaderWorkerSet", LWS % f", leaderTemplate: {SPEC}"),
        {"job-leadertemplate-0": 2, "job-workertemplate-0": 6},
    ),
    "RayCluster": (custom("ray.io/v1", "RayCluster", f"{{{RAY}}}"), {"job-headgroupspec-0": 1, "job-gpu-0": 6}),
    "RayJob": (
        custom("ray.io/v1", "RayJob", f"{{rayClusterSpec: {{{RAY}}}}}"),
        {"job-headgroupspec-0": 1, "job-gpu-0": 6},
    ),
    "RayService": (
        custom("ray.io/v1", "RayService", f"{{rayClusterConfig: {{{RAY}}}}}"),
        {"job-headgroupspec-0": 1, "job-gpu-0": 6},
    ),
    "Notebook": (custom("kubeflow.org/v1", "Notebook", f"{{template: {SPEC}}}"), {"job-0": 1}),
    "Knative Service": (
        custom("serving.knative.dev/v1", "Service", "{template: {spec: {timeoutSeconds: 9, containers: [{image: x}]}}}"),
        {"job-0": 1},
    ),
    "Knative Configuration": (
        custom("serving.knative.dev/v1", "Configuration", "{template: {spec: {containers: [{image: x}]}}}"),
        {"job-0": 1},
    ),
    "SparkApplication": (
        custom("sparkoperator.k8s.io/v1beta2", "SparkApplication", "{driver: {memory: 512m}, executor: {instances: 3, memory: 8g}}"),
        {"job-driver-0": 1, "job-executor-0": 3},
    ),
    "ScheduledSparkApplication": (
        custom("sparkoperator.k8s.io/v1beta2", "ScheduledSparkApplication", "{template: {driver: {}, executor: {}}}"),
        {"job-driver-0": 1, "job-executor-0": 1},
    ),
    **{
        kind: (
            custom("argoproj.io/v1alpha1", kind, f"{{{WORKFLOW}}}" if kind != "CronWorkflow" else f"{{workflowSpec: {{{WORKFLOW}}}}}"),
            {"job-a-0": 1, "job-b-0": 1},
        )
        for kind in ("Workflow", "WorkflowTemplate", "ClusterWorkflowTemplate", "CronWorkflow")
    },
    **{
        kind: (
            custom("kubeflow.org/v1", kind, f"{{{field}: {{Master: {{template: {SPEC}}}, Worker: {{replicas: 3, template: {SPEC}}}}}}}"),
            {"job-master-0": 1, "job-worker-0": 3},
        )
        for kind, field in KUBEFLOW.items()
    },
}  # fmt: skip


@pytest.mark.parametrize("name", CASES)
def test_the_pods_of_custom_resources_are_judged(name: str) -> None:
    text, expected = CASES[name]
    assert pods(text) == expected


def test_every_kind_of_the_table_has_a_case() -> None:
    kinds = {
        (document["apiVersion"].partition("/")[0], document["kind"]) for document in map(_document, CASES)
    }
    assert kinds == {(known.group, known.kind) for known in known_kinds()}


def _document(name: str) -> Any:
    return yaml.safe_load(CASES[name][0])


def test_a_pod_names_its_custom_resource_as_its_owner() -> None:
    (workload,) = loaded(CASES["Rollout"][0]).workloads
    assert (workload.api_version, workload.kind, workload.name) == ("argoproj.io/v1alpha1", "Rollout", "job")
    (owner,) = workload.pod.metadata.owner_references
    assert (owner.kind, owner.name) == ("Rollout", "job")


@pytest.mark.parametrize(
    ("field", "memory", "cpu"),
    [
        ("memory: 512m", "896Mi", "1"),
        ("memory: 8g, cores: 2", "9011Mi", "2"),
        ("memory: 1g, memoryOverhead: 1g, coreRequest: 500m, cores: 2", "2Gi", "500m"),
    ],
)
def test_spark_adds_its_overhead_to_the_memory(field: str, memory: str, cpu: str) -> None:
    driver, _ = loaded(
        custom("sparkoperator.k8s.io/v1beta2", "SparkApplication", f"{{driver: {{{field}}}, executor: {{}}}}")
    ).workloads
    requests = driver.pod.spec.containers[0].resources.requests
    assert (str(requests["memory"]), str(requests["cpu"])) == (memory, cpu)


def test_python_needs_more_overhead_than_a_virtual_machine() -> None:
    spec = "{type: Python, driver: {memory: 2g}, executor: {}}"
    driver, _ = loaded(custom("sparkoperator.k8s.io/v1beta2", "SparkApplication", spec)).workloads
    assert str(driver.pod.spec.containers[0].resources.requests["memory"]) == "2867Mi"


def test_a_workflow_sets_fields_for_all_of_its_pods() -> None:
    spec = "{nodeSelector: {a: b}, templates: [{name: a, container: {image: x}, nodeSelector: {c: d}}, {name: b, container: {image: x}}]}"
    first, second = loaded(custom("argoproj.io/v1alpha1", "Workflow", spec)).workloads
    assert (first.pod.spec.node_selector, second.pod.spec.node_selector) == ({"c": "d"}, {"a": "b"})
    assert first.pod.spec.containers[0].name == "main"


def test_amounts_that_are_parameters_are_named_and_not_judged() -> None:
    spec = "{templates: [{name: a, container: {image: x, resources: {requests: {cpu: '{{inputs.parameters.cpu}}'}}}}]}"
    result = loaded(custom("argoproj.io/v1alpha1", "Workflow", spec))
    assert result.workloads == ()
    assert result.skipped == {"Workflow": 1}
    assert result.warnings == (
        "Workflow default/job: the resources in spec.templates[0] are parameters, so its pods are not judged",
    )


WIDGET = custom("example.com/v1", "Widget", f"{{parts: [{{podTemplate: {SPEC}, replicas: 2}}]}}")


def test_unknown_kinds_with_pod_templates_are_named() -> None:
    result = loaded(WIDGET)
    assert result.skipped == {"Widget": 1}
    assert result.warnings == (
        (
            "Widget default/job: the pods of its template spec.parts[*].podTemplate are not judged; "
            "--template-path 'Widget=spec.parts[*].podTemplate' judges them"
        ),
    )


@pytest.mark.parametrize("name", ["Widget", "Widget.example.com"])
def test_users_add_kinds(name: str) -> None:
    assert pods(WIDGET, f"{name}=spec.parts[*].podTemplate") == {"job-0": 1}
    assert loaded(WIDGET, f"{name}=spec.parts[*].podTemplate").warnings == ()


def test_a_kind_of_another_group_is_not_meant() -> None:
    assert pods(WIDGET, "Widget.example.org=spec.parts[*].podTemplate") == {}


@pytest.mark.parametrize("text", ["Widget", "=spec.template", "Widget=", "Widget=spec..template"])
def test_a_malformed_path_is_an_error(text: str) -> None:
    with pytest.raises(InputError, match="must be KIND=PATH"):
        parsed_template_path(text)


def test_faults_in_a_template_are_located() -> None:
    text = custom("argoproj.io/v1alpha1", "Rollout", f"\n  template: {SPEC.replace('cpu: 2', 'cpu: 2x')}")
    with pytest.raises(InputError, match=r"test.yaml:5:\d+.*requests\[cpu\]"):
        loaded(text)


def test_a_definition_of_a_custom_resource_is_no_template() -> None:
    schema: dict[str, Any] = {
        "properties": {"template": {"properties": {"spec": {"properties": {"containers": {}}}}}}
    }
    assert list(template_paths({"spec": {"versions": [{"schema": schema}]}})) == []


def test_a_kind_without_its_templates_has_no_pods() -> None:
    assert custom_pods({"kind": "Rollout", "spec": {}}, "argoproj.io") == ()
    assert custom_pods({"kind": "Rollout"}, "example.com") is None
