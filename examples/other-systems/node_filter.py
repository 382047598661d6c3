"""A node filter that asks `POST /v1/admit`: for autoscalers from Python, for kube-scheduler and HAMi as an HTTP extender.

    ADMIT_URL=http://127.0.0.1:8085/v1/admit python node_filter.py 8090

serves `POST /filter` with the messages of kube-scheduler's extenders (ExtenderArgs, ExtenderFilterResult), so it can stand in a
KubeSchedulerConfiguration beside the extender of another system, such as HAMi.
"""

import json
import os
import sys
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any
from urllib.request import Request, urlopen

TIMEOUT_S, MAX_BODY = 30, 64 << 20


def verdicts(admit_url: str, pod: dict[str, Any], nodes: list[str]) -> list[dict[str, Any]]:
    """The answer of each node."""
    body = json.dumps({"pod": pod, "nodes": nodes}).encode()
    request = Request(admit_url, body, {"Content-Type": "application/json"})  # noqa: S310 - address of the operator
    with urlopen(request, timeout=TIMEOUT_S) as response:  # noqa: S310 - as above
        return json.load(response)["nodes"]


def filtered(admit_url: str, arguments: dict[str, Any]) -> dict[str, Any]:
    """The result of a scheduler's call: the nodes that would admit the pod, and why the others do not."""
    names = arguments.get("NodeNames")
    items = None if names is not None else (arguments.get("Nodes") or {}).get("items") or []
    if items is not None:  # an extender without nodeCacheCapable gets whole Node objects
        names = [node["metadata"]["name"] for node in items]
    answers = verdicts(admit_url, arguments["Pod"], names)
    possible = {answer["name"] for answer in answers if answer["possible"]}
    refused: dict[bool, dict[str, str]] = {False: {}, True: {}}
    for answer in answers:
        if answer["name"] not in possible:
            text = f"{answer['reason'] or answer['decision']}: {answer['message'] or answer['note']}"
            refused[answer["unresolvable"]][answer["name"]] = text
    kept = [name for name in names if name in possible]
    result: dict[str, Any] = {
        "FailedNodes": refused[False],
        "FailedAndUnresolvableNodes": refused[True],
        "Error": "",
    }
    if items is None:
        return {"NodeNames": kept, **result}
    return {"Nodes": {"items": [node for node in items if node["metadata"]["name"] in possible]}, **result}


def best_group(admit_url: str, pod: dict[str, Any], groups: dict[str, str]) -> str | None:
    """For an autoscaler: the node group whose node admits the pod best, by a node of each; None: no group does."""
    by_name = {answer["name"]: answer for answer in verdicts(admit_url, pod, [*groups.values()])}
    possible = [group for group, node in groups.items() if by_name[node]["possible"]]
    return max(possible, key=lambda group: by_name[groups[group]]["score"], default=None)


class Handler(BaseHTTPRequestHandler):
    """Answers `POST /filter`; what goes wrong is the extender's `Error`, so that the pod waits."""

    def do_POST(self) -> None:
        length = int(self.headers.get("Content-Length") or 0)
        if self.path != "/filter" or not 0 < length <= MAX_BODY:
            self.send_error(404)
            return
        try:
            result = filtered(os.environ["ADMIT_URL"], json.loads(self.rfile.read(length)))
        except (OSError, ValueError, KeyError, TypeError) as error:
            result = {"Error": f"{type(error).__name__}: {error}"}
        content = json.dumps(result).encode()
        self.send_response(200)
        self.send_header("Content-Type", "application/json")
        self.send_header("Content-Length", str(len(content)))
        self.end_headers()
        self.wfile.write(content)


if __name__ == "__main__":
    server = ThreadingHTTPServer(("127.0.0.1", int(sys.argv[1]) if sys.argv[1:] else 8090), Handler)
    print(f"http://127.0.0.1:{server.server_address[1]}/filter", flush=True)
    server.serve_forever()
