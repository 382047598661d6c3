from nodewright.world.manifests import workloads_from

DEPLOYMENT = b"""
apiVersion: apps/v1
kind: Deployment
metadata: {name: web, namespace: shop}
spec:
  replicas: 3
  selector: {matchLabels: {app: web}}
  template:
    metadata: {labels: {app: web}}
    spec:
      containers:
      - {name: main, image: nginx, resources: {requests: {cpu: 250m}}}
---
apiVersion: v1
kind: Service
metadata: {name: web}
"""


def test_a_deployment_gives_the_pod_that_its_controller_would_make() -> None:
    loaded = workloads_from(DEPLOYMENT, "web.yaml")
    (workload,) = loaded.workloads
    assert (workload.kind, workload.name, workload.namespace, workload.replicas) == (
        "Deployment",
        "web",
        "shop",
        3,
    )
    assert workload.pod.full_name == "shop/web-0"
    assert workload.pod.metadata.labels == {"app": "web"}
    assert dict(loaded.skipped) == {"Service": 1}
