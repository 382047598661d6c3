"""What becomes of manifests in namespaces with quotas and limit ranges."""

from collections.abc import Sequence

import pytest

from nodewright.documents.formats.inventory import inventory_from_bytes
from nodewright.engine.admission.api_server.apply import ApplyResult, apply
from nodewright.engine.admission.api_server.expansion import ExpansionOptions, fenceposts
from nodewright.model.kubernetes.api_request import Manifest, RollingUpdate
from nodewright.predict.quota.applied_inventory import refusal_text
from nodewright.predict.quota.fixes import PodHeadroom, pod_headroom, smallest_fixes
from tools.source import ROOT

QUOTA = "{apiVersion: v1, kind: ResourceQuota, metadata: {name: q}, spec: {hard: {%s}}}"


def manifests(*texts: str) -> list[Manifest]:
    return [obj.manifest for obj in inventory_from_bytes("\n---\n".join(texts).encode(), "f.yaml").objects]


def pods_of(
    kind: str, spec: str, containers: str = "{name: a, resources: {limits: {cpu: 1}}}", more: str = ""
) -> str:
    if kind in ("Job", "CronJob"):
        version, selector, more = "batch/v1", "", f"{more}, restartPolicy: Never"
    else:
        version, selector = "apps/v1", "selector: {matchLabels: {app: a}}, "
    template = f"{selector}template: {{metadata: {{labels: {{app: a}}}}, spec: {{containers: [{containers}]{more}}}}}"
    return f"{{apiVersion: {version}, kind: {kind}, metadata: {{name: {kind.lower()}}}, spec: {{{spec}{template}}}}}"


def outcome_lines(applied: ApplyResult) -> list[str]:
    return [
        f"{outcome.resource} {outcome.name} {outcome.admitted}/{outcome.requested}"
        f"{f' ({outcome.refused} refused)' if outcome.refused else ''}{' surge' if outcome.is_surge else ''}"
        for outcome in applied.outcomes
    ]


def messages(applied: ApplyResult) -> list[str]:
    return [
        refusal_text(refusal.resource, refusal.refusal)
        for refusal in applied.refusals
        if refusal.refusal is not None
    ]


def used(applied: ApplyResult, namespace: str = "default") -> dict[str, str]:
    return {
        name: str(amount)
        for quota in applied.after[namespace].quotas
        for name, amount in quota.status.used.items()
    }


def test_three_pods_with_init_containers_are_charged_their_effective_limits() -> None:
    pods = (ROOT / "examples/requests/init-containers.yaml").read_text("utf-8")
    applied = apply(manifests(pods, QUOTA % "limits.memory: 2Gi, limits.cpu: 1"), ExpansionOptions())
    assert [
        {name: str(one) for _, amounts in each.charge for name, one in amounts.items()}
        for each in applied.outcomes
    ] == [
        {"limits.memory": "430Mi", "limits.cpu": "210m"},
        {"limits.memory": "450Mi", "limits.cpu": "200m"},
        {"limits.memory": "730Mi", "limits.cpu": "200m"},
    ]
    assert used(applied) == {"limits.memory": "1610Mi", "limits.cpu": "610m"}


def test_replicas_are_admitted_as_long_as_the_quota_allows_and_later_objects_follow() -> None:
    applied = apply(
        manifests(
            pods_of("Deployment", "replicas: 4, "),
            "{apiVersion: v1, kind: Service, metadata: {name: s}, spec: {type: NodePort, ports: [{port: 1}, {port: 2}]}}",
            QUOTA % "limits.cpu: 2500m, services.nodeports: 2, count/deployments.apps: 1",
        ),
        ExpansionOptions(),
    )
    assert outcome_lines(applied) == [
        "deployments.apps deployment 1/1",
        "replicasets.apps deployment- 1/1",
        "pods deployment-0 2/4 (2 refused)",
        "services s 1/1",
    ]
    assert messages(applied) == [
        (
            'pods "deployment-2" is forbidden: exceeded quota: q, requested: limits.cpu=1, used: limits.cpu=2, '
            "limited: limits.cpu=2500m"
        )
    ]
    assert used(applied) == {"limits.cpu": "2", "services.nodeports": "2", "count/deployments.apps": "1"}


def test_limit_ranges_set_defaults_before_they_are_checked() -> None:
    limit_range = (
        "{apiVersion: v1, kind: LimitRange, metadata: {name: l}, spec: {limits: [{type: Container, %s}]}}"
    )
    bare = pods_of("ReplicaSet", "", "{name: a}")
    quota = QUOTA % "limits.memory: 1Gi"
    without = apply(manifests(bare, quota), ExpansionOptions())
    assert messages(without) == [
        'pods "replicaset-0" is forbidden: failed quota: q: must specify limits.memory for: a'
    ]
    with_default = apply(manifests(bare, limit_range % "default: {memory: 100Mi}", quota), ExpansionOptions())
    assert used(with_default) == {"limits.memory": "100Mi"}
    (given,) = with_default.outcomes[-1].filled
    assert (given.limit_range, given.defaults[0].container) == ("l", "a")
    bounded = apply(
        manifests(bare, limit_range % "default: {memory: 100Mi}, min: {cpu: 1}, max: {cpu: 1}", quota),
        ExpansionOptions(),
    )
    assert not bounded.refusals
    beyond = apply(manifests(pods_of("ReplicaSet", ""), limit_range % "max: {cpu: 500m}"), ExpansionOptions())
    assert messages(beyond) == [
        'pods "replicaset-0" is forbidden: maximum cpu usage per Container is 500m, but limit is 1'
    ]


def test_claims_keep_to_limit_ranges_and_a_pod_is_not_made_without_its_claim() -> None:
    claims = "volumeClaimTemplates: [{metadata: {name: d}, spec: {accessModes: [ReadWriteOnce], resources: {requests: {storage: 2Gi}}}}], "
    bound = (
        "{apiVersion: v1, kind: LimitRange, metadata: {name: l}, spec: {limits: "
        "[{type: PersistentVolumeClaim, max: {storage: 1Gi}}]}}"
    )
    applied = apply(manifests(pods_of("StatefulSet", f"replicas: 3, {claims}"), bound), ExpansionOptions())
    assert outcome_lines(applied)[-2:] == [
        "persistentvolumeclaims d-statefulset-0 0/3 (1 refused)",
        "pods statefulset-0 0/3",
    ]
    assert messages(applied) == [
        (
            'persistentvolumeclaims "d-statefulset-0" is forbidden: maximum storage usage per PersistentVolumeClaim is 1Gi, '
            "but request is 2Gi"
        )
    ]


CLAIMS = "volumeClaimTemplates: [{metadata: {name: d}, spec: {accessModes: [ReadWriteOnce], resources: {requests: {storage: 1Gi}}}}], "


def test_a_stateful_set_stops_at_the_first_pod_that_is_refused_and_its_claim_stays() -> None:
    quota = QUOTA % "limits.cpu: 1, requests.storage: 9Gi"
    ordered = apply(manifests(pods_of("StatefulSet", f"replicas: 4, {CLAIMS}"), quota), ExpansionOptions())
    assert used(ordered) == {"limits.cpu": "1", "requests.storage": "2Gi"}
    assert outcome_lines(ordered)[-1] == "pods statefulset-0 1/4 (1 refused)"


@pytest.mark.parametrize(
    ("replicas", "most", "claims", "pods"),
    [
        (2, 0, "1", "0/2 (1 refused)"),
        (9, 1, "3", "1/9 (2 refused)"),
        (9, 3, "7", "3/9 (4 refused)"),
        (5, 3, "5", "3/5 (2 refused)"),
        (5, 5, "5", "5/5"),
    ],
)
def test_a_parallel_stateful_set_tries_twice_as_many_pods_until_one_is_refused(
    replicas: int, most: int, claims: str, pods: str
) -> None:
    settings = f"replicas: {replicas}, podManagementPolicy: Parallel, {CLAIMS}"
    quota = QUOTA % f"pods: {most}, persistentvolumeclaims: 99"
    applied = apply(manifests(pods_of("StatefulSet", settings), quota), ExpansionOptions())
    assert used(applied)["persistentvolumeclaims"] == claims
    assert outcome_lines(applied)[-1] == f"pods statefulset-0 {pods}"


def test_all_claims_of_a_stateful_sets_pod_are_tried_and_the_pod_needs_each() -> None:
    claim = (
        "{metadata: {name: %s}, spec: {accessModes: [ReadWriteOnce], resources: {requests: {storage: %s}}}}"
    )
    claims = f"volumeClaimTemplates: [{claim % ('big', '5Gi')}, {claim % ('small', '1Gi')}], "
    quota = QUOTA % "pods: 9, requests.storage: 2Gi"
    applied = apply(manifests(pods_of("StatefulSet", f"replicas: 2, {claims}"), quota), ExpansionOptions())
    assert used(applied) == {"pods": "0", "requests.storage": "1Gi"}


def test_claims_for_pods_are_created_after_them() -> None:
    volume = "{name: v, ephemeral: {volumeClaimTemplate: {spec: {accessModes: [ReadWriteOnce], resources: {requests: {storage: 1Gi}}}}}}"
    more = f", volumes: [{volume}], resourceClaims: [{{name: gpu, resourceClaimTemplateName: two}}]"
    template = (
        "{apiVersion: resource.k8s.io/v1, kind: ResourceClaimTemplate, metadata: {name: two}, spec: {spec: {devices: "
        "{requests: [{name: a, exactly: {deviceClassName: gpu, allocationMode: ExactCount, count: 2}}]}}}}"
    )
    hard = "pods: 3, requests.storage: 2Gi, gpu.deviceclass.resource.k8s.io/devices: 5"
    applied = apply(
        manifests(pods_of("ReplicaSet", "replicas: 3, ", more=more), template, QUOTA % hard),
        ExpansionOptions(),
    )
    assert outcome_lines(applied)[1:4] == [
        "pods replicaset-0 3/3",
        "persistentvolumeclaims replicaset-0-v 2/3 (1 refused)",
        "resourceclaims.resource.k8s.io replicaset-0-gpu- 2/3 (1 refused)",
    ]
    assert [text.split(" is")[0] for text in messages(applied)] == [
        'persistentvolumeclaims "replicaset-2-v"',
        'resourceclaims.resource.k8s.io "replicaset-2-gpu-"',
    ]


@pytest.mark.parametrize("version", ["v1", "v1beta2", "v1beta1"])
def test_a_claim_of_a_template_that_names_no_count_is_charged_one_device(version: str) -> None:
    request = "deviceClassName: gpu" if version == "v1beta1" else "exactly: {deviceClassName: gpu}"
    template = (
        f"{{apiVersion: resource.k8s.io/{version}, kind: ResourceClaimTemplate, metadata: {{name: one}}, "
        f"spec: {{spec: {{devices: {{requests: [{{name: a, {request}}}]}}}}}}}}"
    )
    more = ", resourceClaims: [{name: gpu, resourceClaimTemplateName: one}]"
    hard = "gpu.deviceclass.resource.k8s.io/devices: 2"
    applied = apply(
        manifests(pods_of("ReplicaSet", "replicas: 3, ", more=more), template, QUOTA % hard),
        ExpansionOptions(),
    )
    assert outcome_lines(applied)[2] == "resourceclaims.resource.k8s.io replicaset-0-gpu- 2/3 (1 refused)"


def test_a_stored_pod_has_its_claims_and_they_count_once() -> None:
    template = (
        "{apiVersion: resource.k8s.io/v1, kind: ResourceClaimTemplate, metadata: {name: one, uid: t}, spec: {spec: "
        "{devices: {requests: [{name: a, exactly: {deviceClassName: gpu}}]}}}}"
    )
    pod = (
        "{apiVersion: v1, kind: Pod, metadata: {name: web, uid: w}, spec: {containers: [{name: c, image: i}], "
        "resourceClaims: [{name: gpu, resourceClaimTemplateName: one}]}, "
        "status: {resourceClaimStatuses: [{name: gpu, resourceClaimName: web-gpu-x}]}}"
    )
    claim = (
        "{apiVersion: resource.k8s.io/v1, kind: ResourceClaim, metadata: {name: web-gpu-x, uid: c}, spec: "
        "{devices: {requests: [{name: a, exactly: {deviceClassName: gpu}}]}}}"
    )
    hard = "gpu.deviceclass.resource.k8s.io/devices: 2"
    applied = apply(manifests(pod, claim, template, QUOTA % hard), ExpansionOptions())
    assert used(applied) == {"gpu.deviceclass.resource.k8s.io/devices": "1"}


STORED = (
    "{apiVersion: v1, kind: Pod, metadata: {name: web%s}, spec: {priority: 5, containers: [{name: c, image: i, "
    "resources: {requests: {cpu: 1}}}], ephemeralContainers: [{name: d, image: i}]}, status: %s}"
)


@pytest.mark.parametrize(
    ("status", "charged"),
    [
        ("{phase: Running}", {"requests.cpu": "1", "pods": "1", "count/pods": "1"}),
        ("{phase: Failed}", {"requests.cpu": "0", "pods": "0", "count/pods": "1"}),
        (
            "{containerStatuses: [{name: c, resources: {requests: {cpu: 3}}, allocatedResources: {cpu: 2}}]}",
            {"requests.cpu": "3", "pods": "1", "count/pods": "1"},
        ),
    ],
)
def test_a_stored_pod_is_charged_by_its_status_and_not_created_again(
    status: str, charged: dict[str, str]
) -> None:
    quota = QUOTA % "requests.cpu: 9, pods: 9, count/pods: 9"
    limits = (
        "{apiVersion: v1, kind: LimitRange, metadata: {name: l}, spec: {limits: [{type: Container, min: {cpu: 2}, "
        "default: {memory: 1Gi}}]}}"
    )
    applied = apply(manifests(STORED % (", uid: u", status), limits, quota), ExpansionOptions())
    assert (used(applied), messages(applied)) == (charged, [])
    new = apply(manifests(STORED % ("", status), limits, quota), ExpansionOptions())
    assert len(messages(new)) == 1


def test_a_quota_that_requires_requests_counts_a_stored_pod_without_them() -> None:
    quota = QUOTA % "requests.memory: 1Gi, pods: 9"
    applied = apply(manifests(STORED % (", uid: u", "{}"), quota), ExpansionOptions())
    assert used(applied) == {"requests.memory": "0", "pods": "1"}


@pytest.mark.parametrize(("uid", "charged"), [("w", "2"), ("former", "4")])
def test_a_claim_for_extended_resources_is_not_charged_what_its_pod_is(uid: str, charged: str) -> None:
    pod = (
        "{apiVersion: v1, kind: Pod, metadata: {name: web, uid: w}, spec: {containers: [{name: c, image: i, "
        "resources: {limits: {example.com/gpu: 2}}}]}}"
    )
    claim = (
        "{apiVersion: resource.k8s.io/v1, kind: ResourceClaim, metadata: {name: web-x, uid: c, annotations: "
        '{resource.kubernetes.io/extended-resource-claim: "true"}, ownerReferences: [{apiVersion: v1, kind: Pod, '
        f"name: web, uid: {uid}, controller: true}}]}}, "
        "spec: {devices: {requests: [{name: a, exactly: {deviceClassName: gpu, count: 2}}]}}}"
    )
    device_class = (
        "{apiVersion: resource.k8s.io/v1, kind: DeviceClass, metadata: {name: gpu}, "
        "spec: {extendedResourceName: example.com/gpu}}"
    )
    quota = QUOTA % "requests.example.com/gpu: 9"
    assert used(apply(manifests(pod, claim, device_class, quota), ExpansionOptions())) == {
        "requests.example.com/gpu": charged
    }


@pytest.mark.parametrize(
    ("update", "wanted", "surge", "unavailable"),
    [
        (RollingUpdate(max_surge="25%", max_unavailable="25%"), 5, 2, 1),
        (RollingUpdate(max_surge="25%", max_unavailable="25%"), 1, 1, 0),
        (RollingUpdate(max_surge=2, max_unavailable=9), 4, 2, 4),
        (RollingUpdate(max_surge=0, max_unavailable="10%"), 5, 0, 1),
        (RollingUpdate(max_surge="1", max_unavailable=0), 5, 0, 1),
    ],
)
def test_percentages_of_updates_are_rounded_in_the_pods_favour(
    update: RollingUpdate, wanted: int, surge: int, unavailable: int
) -> None:
    assert fenceposts(update, wanted) == (surge, unavailable)


def test_a_rolling_update_adds_pods_when_everything_else_is_there() -> None:
    texts = (
        pods_of("Deployment", "replicas: 4, "),
        pods_of("DaemonSet", ""),
        QUOTA % "pods: 9, count/replicasets.apps: 2",
    )
    applied = apply(manifests(*texts), ExpansionOptions(nodes=3, surge=True))
    assert outcome_lines(applied)[-3:] == [
        "pods daemonset-0 3/3",
        "replicasets.apps deployment- 1/1 surge",
        "pods deployment-4 1/1 surge",
    ]
    assert used(applied) == {"pods": "8", "count/replicasets.apps": "2"}


def test_namespaces_are_independent_and_those_without_quotas_admit_everything() -> None:
    shop = (QUOTA % "pods: 1").replace("name: q", "name: q, namespace: shop")
    pods = "{apiVersion: v1, kind: Pod, metadata: {name: %s, namespace: %s}, spec: {containers: [{name: a}]}}"
    texts = [
        pods % (name, space) for name, space in (("a", "shop"), ("b", "shop"), ("c", "lab"), ("d", "lab"))
    ]
    applied = apply(manifests(*texts, shop), ExpansionOptions())
    assert [outcome.admitted for outcome in applied.outcomes] == [1, 0, 1, 1]
    assert used(applied, "shop") == {"pods": "1"}
    assert "lab" not in applied.after


def test_quotas_and_limit_ranges_count_themselves_before_all_else() -> None:
    texts = (QUOTA % "resourcequotas: 1, count/limitranges: 5, configmaps: 2",)
    config = "{apiVersion: v1, kind: ConfigMap, metadata: {name: c%s}}"
    bounds = "{apiVersion: v1, kind: LimitRange, metadata: {name: l}}"
    event = "{apiVersion: v1, kind: Event, metadata: {name: e}}"
    applied = apply(manifests(config % 1, config % 2, event, *texts, bounds), ExpansionOptions())
    assert [outcome.admitted for outcome in applied.outcomes] == [1, 0, 1]
    assert used(applied) == {"resourcequotas": "1", "count/limitranges": "1", "configmaps": "2"}


def test_the_used_amounts_in_the_status_can_be_the_initial_usage() -> None:
    quota = (
        QUOTA[:-1] % "pods: 5, configmaps: 1" + ", status: {hard: {pods: 3}, used: {pods: 4, secrets: 1}}}"
    )
    texts = (pods_of("ReplicaSet", "replicas: 2, "), quota)
    assert used(apply(manifests(*texts), ExpansionOptions())) == {"pods": "2", "configmaps": "1"}
    applied = apply(manifests(*texts), ExpansionOptions(from_status=True))
    assert used(applied) == {"pods": "5"}  # What the status does not have is unknown.
    assert len(applied.refusals) == 1


def test_headroom_counts_pods_with_all_their_objects() -> None:
    claims = "volumeClaimTemplates: [{metadata: {name: d}, spec: {accessModes: [ReadWriteOnce], resources: {requests: {storage: 2Gi}}}}], "
    texts = (
        pods_of("StatefulSet", f"replicas: 1, {claims}"),
        pods_of("Job", ""),
        pods_of("ReplicaSet", "", "{name: a}"),
        "{apiVersion: v1, kind: ConfigMap, metadata: {name: c}}",
        QUOTA % "limits.cpu: 9, requests.storage: 5Gi",
    )
    before = manifests(*texts)
    pod_headrooms = pod_headroom(before, apply(before, ExpansionOptions()), ExpansionOptions())
    assert [(room.manifest, room.additional_pods) for room in pod_headrooms] == [(0, 1), (1, 7), (2, 0)]
    assert pod_headrooms[2].because is not None
    free = manifests(texts[3], pods_of("Job", ""), QUOTA % "services: 1")
    assert pod_headroom(free, apply(free, ExpansionOptions()), ExpansionOptions()) == (
        PodHeadroom(manifest=1, additional_pods=None),
    )


def mended(*texts: str) -> Sequence[object]:
    before = manifests(*texts)
    quota_fixes = smallest_fixes(before, apply(before, ExpansionOptions()), ExpansionOptions())
    return (
        [
            f"{increase.quota} {increase.resource} {increase.minimum}"
            for increase in quota_fixes.quota_increases
        ],
        [(reduction.manifest, reduction.maximum) for reduction in quota_fixes.single_reductions],
        [(reduction.manifest, reduction.maximum) for reduction in quota_fixes.combined_reductions],
        len(quota_fixes.unfixable),
    )


def test_fixes_are_larger_quotas_or_fewer_pods() -> None:
    two = (pods_of("Deployment", "replicas: 4, "), pods_of("ReplicaSet", "replicas: 3, "))
    assert mended(*two, QUOTA % "limits.cpu: 5") == (["q limits.cpu 7"], [(0, 2), (1, 1)], [], 0)
    assert mended(*two, QUOTA % "limits.cpu: 3") == (["q limits.cpu 7"], [], [(0, 2), (1, 1)], 0)
    assert mended(*two, QUOTA % "limits.cpu: 1") == (["q limits.cpu 7"], [], [], 0)
    assert mended(*two, QUOTA % "limits.cpu: 7") == ([], [], [], 0)


def test_fewer_pods_do_not_help_where_another_object_does_not_fit() -> None:
    config = "{apiVersion: v1, kind: ConfigMap, metadata: {name: c}}"
    texts = (pods_of("Deployment", "replicas: 4, "), config, QUOTA % "limits.cpu: 2, configmaps: 1")
    assert mended(*texts) == (["q configmaps 2", "q limits.cpu 4"], [], [], 0)


def test_no_quota_increase_helps_a_pod_without_requests() -> None:
    texts = (pods_of("Job", "parallelism: 2, ", "{name: a}"), QUOTA % "limits.cpu: 2")
    assert mended(*texts) == ([], [], [], 1)


@pytest.mark.parametrize(
    ("requests", "sums"),
    [
        ("512 1536 1Ki", "512 2048 3072"),
        ("0.5Ki 1.5Ki 1Ki", "512 2048 3072"),
        ("1.5Ki 0.5Ki 1Ki", "1536 2048 3072"),
        ("1Ki 1Ki 512", "1Ki 2Ki 2560"),
        ("1Ki 1536 1536", "1Ki 2560 4096"),
        ("1Ki 1 1023", "1Ki 1025 2048"),
        ("1Mi 1k 1576Ki", "1Mi 1049576 2663400"),
        ("1e3 500 500", "1e3 1500 2k"),
        ("1025m 975m 1Ki", "1025m 2 1026"),
    ],
)
def test_used_amounts_keep_the_notation_of_the_stored_amount_that_is_added_to(
    requests: str, sums: str
) -> None:
    """The sums of a kube-apiserver v1.36.2 that creates these pods one after the other."""
    pod = '{apiVersion: v1, kind: Pod, metadata: {name: p%d}, spec: {containers: [{name: a, resources: {requests: {memory: "%s"}}}]}}'
    pods = [pod % each for each in enumerate(requests.split())]
    wanted = sums.split()
    for count in range(1, len(pods) + 1):
        applied = apply(manifests(*pods[:count], QUOTA % "requests.memory: 1Gi"), ExpansionOptions())
        assert used(applied) == {"requests.memory": wanted[count - 1]}


@pytest.mark.parametrize("amount", ["1Ki", "1536", "0.5Ki", "1e3", "500m", "1Mi"])
def test_equal_pods_at_once_are_charged_as_one_after_the_other(amount: str) -> None:
    quota = QUOTA % "requests.memory: 1Gi"
    container = f'{{name: a, resources: {{requests: {{memory: "{amount}"}}}}}}'
    together = apply(manifests(pods_of("Job", "parallelism: 5, ", container), quota), ExpansionOptions())
    jobs = [
        pods_of("Job", "", container).replace("name: job", f"name: job{number}", 1) for number in range(5)
    ]
    assert used(together) == used(apply(manifests(*jobs, quota), ExpansionOptions()))


def test_nothing_new_is_created_in_a_namespace_that_is_being_terminated() -> None:
    ending = "{apiVersion: v1, kind: Namespace, metadata: {name: default}, status: {phase: Terminating}}"
    reason = "unable to create new content in namespace default because it is being terminated"
    objects = (
        ending,
        QUOTA % "pods: 5",
        "{apiVersion: v1, kind: ConfigMap, metadata: {name: c}}",
        "{apiVersion: v1, kind: ConfigMap, metadata: {name: existing, uid: u}}",
        "{apiVersion: v1, kind: Pod, metadata: {name: p}, spec: {containers: [{name: a}]}}",
        "{apiVersion: v1, kind: Pod, metadata: {name: stored, uid: u}, spec: {containers: [{name: a}]}}",
        pods_of("Deployment", "replicas: 2, "),
        "{apiVersion: v1, kind: ConfigMap, metadata: {name: c, namespace: other}}",
    )
    applied = apply(manifests(*objects), ExpansionOptions())
    assert outcome_lines(applied) == [
        "configmaps c 0/1 (1 refused)",
        "configmaps existing 1/1",
        "pods p 0/1 (1 refused)",
        "pods stored 1/1",
        "deployments.apps deployment 0/1 (1 refused)",
        "replicasets.apps deployment- 0/1",
        "pods deployment-0 0/2",
        "configmaps c 1/1",
    ]
    assert messages(applied) == [
        f'configmaps "c" is forbidden: {reason}',
        f'pods "p" is forbidden: {reason}',
        f'deployments.apps "deployment" is forbidden: {reason}',
    ]
    headroom = pod_headroom(manifests(*objects), applied, ExpansionOptions())
    assert {each.additional_pods for each in headroom} == {0}
    active = ending.replace("Terminating", "Active")
    assert not apply(manifests(active, *objects[1:]), ExpansionOptions()).refusals


def test_a_static_pod_is_charged_as_its_mirror_pod() -> None:
    pod = (
        "{apiVersion: v1, kind: Pod, metadata: {name: p%s}, spec: {runtimeClassName: r, containers: [{name: a, image: a}]}}",
        ", annotations: {kubernetes.io/config.source: file}",
    )
    cluster = (
        QUOTA % "requests.cpu: 5",
        "{apiVersion: v1, kind: LimitRange, metadata: {name: l}, spec: {limits: [{type: Container, defaultRequest: {cpu: 1}}]}}",
        "{apiVersion: node.k8s.io/v1, kind: RuntimeClass, metadata: {name: r}, handler: r, overhead: {podFixed: {cpu: 500m}}}",
    )
    charges = [
        apply(manifests(pod[0] % source, *cluster), ExpansionOptions()).outcomes[0].charge
        for source in ("", pod[1])
    ]
    assert [str(amounts["requests.cpu"]) for ((_, amounts),) in charges] == ["1500m", "1500m"]
