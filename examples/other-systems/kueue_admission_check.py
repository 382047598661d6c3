"""A Kueue admission check: a workload whose quota is reserved starts only if some node would admit each of its pods.

    API_SERVER=http://127.0.0.1:8001 ADMIT_URL=http://127.0.0.1:8085/v1/admit python kueue_admission_check.py

`kubectl proxy` serves the first address, `nodewright extender` the second. Workloads without a node are queued again after a
minute, with the reasons of the nodes as their message. `--once` looks at all workloads once.
"""

import json
import os
import sys
import time
from collections import Counter
from typing import Any
from urllib.request import Request, urlopen

CONTROLLER = "nodewright.dev/node-admission"
KUEUE = "/apis/kueue.x-k8s.io/v1beta2"
PERIOD_S, RETRY_S, TIMEOUT_S = 5, 60, 30


def call(url: str, body: Any = None, method: str = "GET", content_type: str = "application/json") -> Any:
    data = None if body is None else json.dumps(body).encode()
    request = Request(url, data, {"Content-Type": content_type}, method=method)  # noqa: S310 - addresses of the operator
    with urlopen(request, timeout=TIMEOUT_S) as response:  # noqa: S310 - as above
        return json.load(response)


class AdmissionCheck:
    """Answers the checks of one controller name."""

    def __init__(self, api_server: str, admit_url: str) -> None:
        self.kueue, self.admit_url = f"{api_server}{KUEUE}", admit_url
        self.flavors: dict[str, dict[str, str]] = {}
        """Node labels by ResourceFlavor."""

    def run_once(self) -> None:
        checks = set()
        for check in call(f"{self.kueue}/admissionchecks")["items"]:
            if check["spec"]["controllerName"] == CONTROLLER:
                checks.add(check["metadata"]["name"])
                self.activate(check)
        flavors = call(f"{self.kueue}/resourceflavors")["items"]
        self.flavors = {
            flavor["metadata"]["name"]: flavor.get("spec", {}).get("nodeLabels", {}) for flavor in flavors
        }
        for workload in call(f"{self.kueue}/workloads")["items"]:
            states = workload.get("status", {}).get("admissionChecks", [])
            mine = [state for state in states if state["name"] in checks and state["state"] == "Pending"]
            if mine and has_quota(workload):
                self.answer(workload, [state["name"] for state in mine])

    def activate(self, check: dict[str, Any]) -> None:
        """Tells Kueue that this controller answers the check."""
        conditions = check.get("status", {}).get("conditions", [])
        if any(each["type"] == "Active" and each["status"] == "True" for each in conditions):
            return
        active = {
            "type": "Active",
            "status": "True",
            "reason": "Running",
            "message": "asks the nodes",
            "lastTransitionTime": now(),
        }
        self.patch_status(
            f"{self.kueue}/admissionchecks/{check['metadata']['name']}", check, {"conditions": [active]}
        )

    def answer(self, workload: dict[str, Any], names: list[str]) -> None:
        refusals = [
            text for pod_set in workload["spec"]["podSets"] if (text := self.refusal(workload, pod_set))
        ]
        state = {"state": "Retry", "requeueAfterSeconds": RETRY_S} if refusals else {"state": "Ready"}
        message = "; ".join(refusals) or "a node admits each pod"
        states = [
            {**each, **state, "message": message, "lastTransitionTime": now()}
            if each["name"] in names
            else each
            for each in workload["status"]["admissionChecks"]
        ]
        meta = workload["metadata"]
        url = f"{self.kueue}/namespaces/{meta['namespace']}/workloads/{meta['name']}"
        self.patch_status(url, workload, {"admissionChecks": states})
        print(f"{meta['namespace']}/{meta['name']}: {state['state']}: {message}", flush=True)

    def refusal(self, workload: dict[str, Any], pod_set: dict[str, Any]) -> str:
        """Why no node admits a pod of the set; empty: one does. The pods of a set are asked for one at a time."""
        template = pod_set["template"]
        spec = {**template["spec"], "nodeSelector": self.node_selector(workload, pod_set)}
        meta = {
            **template.get("metadata", {}),
            "name": pod_set["name"],
            "namespace": workload["metadata"]["namespace"],
        }
        answer = call(self.admit_url, {"pod": {"metadata": meta, "spec": spec}}, "POST")
        if answer["possible"]:
            return ""
        counts = Counter(node["reason"] or node["decision"] for node in answer["nodes"])
        reasons = ", ".join(f"{count} {reason}" for reason, count in sorted(counts.items()))
        return f"no node admits a pod of {pod_set['name']}: {reasons or 'there are none'}"

    def node_selector(self, workload: dict[str, Any], pod_set: dict[str, Any]) -> dict[str, str]:
        """The pod's own, with the labels of the flavors that Kueue has assigned."""
        selector = dict(pod_set["template"]["spec"].get("nodeSelector") or {})
        for assignment in workload["status"].get("admission", {}).get("podSetAssignments", []):
            if assignment["name"] == pod_set["name"]:
                for flavor in assignment.get("flavors", {}).values():
                    selector.update(self.flavors.get(flavor, {}))
        return selector

    def patch_status(self, url: str, read: dict[str, Any], status: dict[str, Any]) -> None:
        """Writes the status; an object that has changed since is answered in the next round."""
        body = {"metadata": {"resourceVersion": read["metadata"]["resourceVersion"]}, "status": status}
        call(f"{url}/status", body, "PATCH", "application/merge-patch+json")


def has_quota(workload: dict[str, Any]) -> bool:
    conditions = workload["status"].get("conditions", [])
    return any(each["type"] == "QuotaReserved" and each["status"] == "True" for each in conditions)


def now() -> str:
    return time.strftime("%Y-%m-%dT%H:%M:%SZ", time.gmtime())


if __name__ == "__main__":
    controller = AdmissionCheck(os.environ["API_SERVER"], os.environ["ADMIT_URL"])
    controller.run_once()
    while "--once" not in sys.argv:
        time.sleep(PERIOD_S)
        try:
            controller.run_once()
        except OSError as error:  # also every HTTP error: the next round tries again
            print(f"error: {error}", file=sys.stderr, flush=True)
