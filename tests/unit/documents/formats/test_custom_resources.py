"""The pods of custom resources: each kind of the table, kinds that users add, and kinds that are named."""

from typing import Any

import pytest
import yaml

from nodewright.documents.formats.custom_resources import custom_pods, known_kinds, template_paths
from nodewright.documents.formats.documents import InputFile
from nodewright.documents.formats.manifests import ManifestLoader
from nodewright.documents.formats.object_selection import ObjectSelection, parsed_template_path
from nodewright.documents.formats.workloads import LoadedWorkloads
from nodewright.model.errors import InputError

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
    "Volcano JobTemplate": (
        custom("flow.volcano.sh/v1alpha1", "JobTemplate", f"{{tasks: [{{name: ps, replicas: 2, template: {SPEC}}}]}}"),
        {"job-0": 2},
    ),
    **{
        kind: (custom("argoproj.io/v1alpha1", kind, f"{{metrics: [{{name: m, provider: {{job: {{spec: {{template: {SPEC}}}}}}}}}]}}"), {"job-0": 1})
        for kind in ("AnalysisRun", "AnalysisTemplate", "ClusterAnalysisTemplate")
    },
    "Experiment": (
        custom("argoproj.io/v1alpha1", "Experiment", f"{{templates: [{{name: a, replicas: 2, template: {SPEC}}}]}}"),
        {"job-0": 2},
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
    "RayCronJob": (
        custom("ray.io/v1", "RayCronJob", f"{{jobTemplate: {{rayClusterSpec: {{{RAY}}}, submitterPodTemplate: {SPEC}}}}}"),
        {"job-headgroupspec-0": 1, "job-gpu-0": 6, "job-submitterpodtemplate-0": 1},
    ),
    **{
        kind: (custom("apps.kruise.io/v1beta1", kind, f"{{{fields}template: {SPEC}}}"), {"job-0": replicas})
        for kind, fields, replicas in (
            ("CloneSet", "replicas: 3, ", 3),
            ("StatefulSet", "replicas: 3, ", 3),
            ("DaemonSet", "", 1),
            ("BroadcastJob", "", 1),
        )
    },
    "AdvancedCronJob": (
        custom("apps.kruise.io/v1beta1", "AdvancedCronJob", f"{{template: {{broadcastJobTemplate: {{spec: {{template: {SPEC}}}}}}}}}"),
        {"job-0": 1},
    ),
    "UnitedDeployment": (
        custom("apps.kruise.io/v1beta1", "UnitedDeployment", f"{{replicas: 6, template: {{cloneSetTemplate: {{spec: {{template: {SPEC}}}}}}}}}"),
        {"job-0": 6},
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
    machines = {
        (known.group, known.kind) for known in known_kinds() if known.pods[0].form == "launcher"
    }  # test_kubevirt_launcher.py
    assert kinds | machines == {(known.group, known.kind) for known in known_kinds()}


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
        "Workflow default/job: spec.templates[0] has parameters in resources, so its pods are not judged",
    )


@pytest.mark.parametrize(
    ("fields", "expected"),
    [
        ("nodeSelector: {arch: '{{inputs.parameters.arch}}'}", "nodeSelector"),
        ("podSpecPatch: '{{inputs.parameters.patch}}'", "podSpecPatch"),
    ],
)
def test_other_fields_with_parameters_are_named(fields: str, expected: str) -> None:
    (warning,) = loaded(workflow(f"{{name: a, container: {{image: x}}, {fields}}}")).warnings
    assert f"spec.templates[0] has parameters in {expected}" in warning


def workflow(template: str, fields: str = "") -> str:
    return custom("argoproj.io/v1alpha1", "Workflow", f"{{{fields}templates: [{template}]}}")


def cpu_requests(text: str) -> list[tuple[str, str]]:
    (read,) = loaded(text).workloads
    containers = read.pod.spec.containers
    return [(container.name, str(container.resources.requests.get("cpu"))) for container in containers]


def test_a_workflow_that_is_named_by_its_controller_is_judged() -> None:
    text = workflow("{name: a, container: {image: x}}")
    assert pods(text.replace("name: job", "generateName: hello-", 1)) == {"hello-0": 1}
    assert pods(text.replace("metadata: {name: job}", "metadata: {namespace: ns}", 1)) == {"workflow-0": 1}


@pytest.mark.parametrize(
    "patch", ['{"containers": [{"name": "main", "resources": {"requests": {"cpu": 3}}}]}']
)
def test_a_patch_changes_the_pod_of_a_workflow(patch: str) -> None:
    side = "sidecars: [{name: s, image: z, mirrorVolumeMounts: true}]"
    text = workflow(f"{{name: a, container: {{image: x}}, {side}, podSpecPatch: '{patch}'}}")
    assert cpu_requests(text) == [("main", "3"), ("s", "None")]


def test_defaults_of_templates_hold_where_a_template_says_nothing() -> None:
    fields = "templateDefaults: {container: {resources: {requests: {cpu: 2, memory: 1Gi}}}, script: {}}, "
    own = "{name: a, container: {image: x, resources: {requests: {cpu: 1}}}}"
    (read,) = loaded(workflow(own, fields)).workloads
    assert {name: str(amount) for name, amount in read.pod.spec.containers[0].resources.requests.items()} == {
        "cpu": "1",
        "memory": "1Gi",
    }


def test_a_set_of_containers_is_one_pod() -> None:
    members = "{name: a, image: x, resources: {requests: {cpu: 1}}}, {name: b, image: x, dependencies: [a]}"
    assert cpu_requests(workflow(f"{{name: main, containerSet: {{containers: [{members}]}}}}")) == [
        ("a", "1"),
        ("b", "None"),
    ]


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


def test_faults_in_a_template_name_the_line_the_object_and_the_field() -> None:
    text = custom("argoproj.io/v1alpha1", "Rollout", f"\n  template: {SPEC.replace('cpu: 2', 'cpu: 2x')}")
    expected = r"test.yaml:5:\d+, Rollout default/job: spec.template.spec.containers\[0\].resources.requests\[cpu\]: "
    with pytest.raises(InputError, match=expected):
        loaded(text)


CLAIMS = "[{metadata: {name: data}, spec: {}}]"
MOUNTING = "{spec: {containers: [{name: a, image: x, volumeMounts: [{name: data, mountPath: /d}]}]}}"


@pytest.mark.parametrize(
    ("version", "kind", "spec"),
    [
        (
            "jobset.x-k8s.io/v1alpha2",
            "JobSet",
            "{volumeClaimPolicies: [{templates: %s}], replicatedJobs: [{name: w, template: {spec: {template: %s}}}]}",
        ),
        (
            "leaderworkerset.x-k8s.io/v1",
            "LeaderWorkerSet",
            "{leaderWorkerTemplate: {volumeClaimTemplates: %s, workerTemplate: %s}}",
        ),
        ("apps.kruise.io/v1beta1", "CloneSet", "{volumeClaimTemplates: %s, template: %s}"),
        (
            "apps.kruise.io/v1beta1",
            "UnitedDeployment",
            "{template: {statefulSetTemplate: {spec: {volumeClaimTemplates: %s, template: %s}}}}",
        ),
    ],
)
def test_controllers_add_volumes_for_claim_templates(version: str, kind: str, spec: str) -> None:
    (workload,) = loaded(custom(version, kind, spec % (CLAIMS, MOUNTING))).workloads
    assert [volume["name"] for volume in workload.pod.spec.volumes] == ["data"]


def test_a_volume_of_the_template_stays_in_place_of_a_claim() -> None:
    template = MOUNTING.replace("{spec: {", "{spec: {volumes: [{name: data, emptyDir: {}}], ")
    spec = f"{{volumeClaimTemplates: {CLAIMS}, template: {template}}}"
    (workload,) = loaded(custom("apps.kruise.io/v1beta1", "CloneSet", spec)).workloads
    assert workload.pod.spec.volumes == ({"name": "data", "emptyDir": {}},)


def test_mounts_of_volumes_that_nothing_adds_are_refused() -> None:
    with pytest.raises(InputError, match=r'volumeMounts\[0\].name: Not found: "data"'):
        loaded(custom("apps.kruise.io/v1beta1", "CloneSet", f"{{template: {MOUNTING}}}"))


@pytest.mark.parametrize("holder", ["", "workflowSpec"])
def test_a_workflow_has_volumes_for_its_claim_templates(holder: str) -> None:
    container = "{image: x, volumeMounts: [{name: data, mountPath: /d}]}"
    spec = f"{{volumeClaimTemplates: {CLAIMS}, templates: [{{name: a, container: {container}}}]}}"
    kind = "CronWorkflow" if holder else "Workflow"
    text = custom("argoproj.io/v1alpha1", kind, f"{{{holder}: {spec}}}" if holder else spec)
    assert [len(workload.pod.spec.volumes) for workload in loaded(text).workloads] == [1]


def test_a_definition_of_a_custom_resource_is_no_template() -> None:
    schema: dict[str, Any] = {
        "properties": {"template": {"properties": {"spec": {"properties": {"containers": {}}}}}}
    }
    assert list(template_paths({"spec": {"versions": [{"schema": schema}]}})) == []


def test_a_kind_without_its_templates_has_no_pods() -> None:
    assert custom_pods({"kind": "Rollout", "spec": {}}, "argoproj.io") == ()
    assert custom_pods({"kind": "Rollout"}, "example.com") is None


_SPARK = "{type: Scala, memoryOverheadFactor: %s, driver: {cores: 1, memory: %s, memoryOverhead: %s}}"


@pytest.mark.parametrize(
    ("factor", "memory", "overhead"),
    [
        *(
            (factor, "1g", None)
            for factor in ("x", "'nan'", "'inf'", "1.0e+308", "'1e400'", "[1]", "-1", "9" * 5000)
        ),
        *(("0.1", amount, "1g") for amount in ("lots", "[1]", "\u0663g")),
        *(("0.1", "1g", amount) for amount in ("lots", "{}", "-1g")),
    ],
)
def test_amounts_of_spark_that_are_none_are_named_and_not_judged(
    factor: str, memory: str, overhead: str | None
) -> None:
    text = _SPARK % (factor, memory, overhead or "1g")
    text = text if overhead else text.replace(", memoryOverhead: 1g", "")
    found = loaded(custom("sparkoperator.k8s.io/v1beta2", "SparkApplication", text))
    assert not found.workloads
    assert "memory, memoryOverhead or memoryOverheadFactor is no amount" in found.warnings[0]


@pytest.mark.parametrize("amount", ["9" * 5000 + "g", "9" * 4299 + "t"])
def test_amounts_of_spark_are_read_in_bounded_time(amount: str) -> None:
    text = _SPARK % ("0.1", amount, "1g")
    (workload,) = loaded(custom("sparkoperator.k8s.io/v1beta2", "SparkApplication", text)).workloads
    assert workload.pod.spec.containers[0].resources.requests["memory"].value() == 2**63 - 1


@pytest.mark.parametrize(
    ("spec", "path"),
    [
        ("{templates: [{name: a, container: {image: x}, sidecars: 5}]}", "spec.templates[0].sidecars"),
        (
            "{templates: [{name: a, container: {image: x}, initContainers: {}}]}",
            "spec.templates[0].initContainers",
        ),
        ("{templates: [{name: a, container: {image: x}, metadata: text}]}", "spec.templates[0].metadata"),
        ("{templates: [{name: a, containerSet: {containers: 5}}]}", "spec.templates[0].containers"),
        (
            "{workflowSpec: text, templates: [{name: a, container: {image: x}}]}",
            "spec.templates[0].workflowSpec",
        ),
    ],
)
def test_parts_of_a_workflow_of_another_type_are_faults(spec: str, path: str) -> None:
    with pytest.raises(InputError) as caught:
        loaded(custom("argoproj.io/v1alpha1", "Workflow", spec))
    assert [fault.path for fault in caught.value.faults] == [path]
    assert "must be a" in str(caught.value)
