"""A pod as `kubectl describe` prints it."""

from msgspec.structs import replace

from nodewright.documents.formats.decode import decode
from nodewright.documents.output.kubectl_describe import describe_pod_text
from nodewright.model.kubernetes.objects import Pod
from nodewright.model.values.instant import Instant

POD = {
    "metadata": {"name": "web", "namespace": "shop", "uid": "u"},
    "spec": {
        "containers": [
            {
                "name": "main",
                "image": "nginx",
                "ports": [{"containerPort": 80}, {"containerPort": 53, "hostPort": 5353, "protocol": "UDP"}],
                "env": [
                    {"name": "PLAIN", "value": "x"},
                    {"name": "MAPPED", "valueFrom": {"configMapKeyRef": {"name": "conf", "key": "who"}}},
                    {
                        "name": "HIDDEN",
                        "valueFrom": {"secretKeyRef": {"name": "s", "key": "k", "optional": True}},
                    },
                    {"name": "NODE", "valueFrom": {"fieldRef": {"fieldPath": "spec.nodeName"}}},
                    {"name": "CPUS", "valueFrom": {"resourceFieldRef": {"resource": "limits.cpu"}}},
                ],
                "volumeMounts": [
                    {"name": "etc", "mountPath": "/etc/app", "readOnly": True},
                    {"name": "data", "mountPath": "/data", "subPath": "in"},
                ],
            },
            {"name": "idle", "image": "pause"},
        ],
        "volumes": [
            {"name": "data", "emptyDir": {"medium": "Memory"}},
            {"name": "etc", "configMap": {"name": "conf"}},
            {"name": "host", "hostPath": {"path": "/srv", "type": "Directory"}},
            {"name": "key", "secret": {"secretName": "s", "optional": True}},
            {
                "name": "me",
                "downwardAPI": {"items": [{"path": "name", "fieldRef": {"fieldPath": "metadata.name"}}]},
            },
            {
                "name": "all",
                "projected": {"sources": [{"secret": {"name": "s"}}, {"configMap": {"name": "c"}}]},
            },
            {"name": "disk", "nfs": {}},
        ],
    },
}
EXPECTED = """
Containers:
  main:
    Image:        nginx
    Ports:        80/TCP, 53/UDP
    Host Ports:   0/TCP, 5353/UDP
    Environment:
      PLAIN:      x
      MAPPED:     <set to the key 'who' of config map 'conf'>  Optional: false
      HIDDEN:     <set to the key 'k' in secret 's'>  Optional: true
      NODE:       (v1:spec.nodeName)
      CPUS:       (limits.cpu)
    Mounts:
      /data from data (rw,path="in")
      /etc/app from etc (ro)
  idle:
    Image:        pause
    Port:         <none>
    Host Port:    <none>
    Environment:  <none>
    Mounts:       <none>
Volumes:
  data:
    Type:       EmptyDir (a temporary directory that shares a pod's lifetime)
    Medium:     Memory
    SizeLimit:  <unset>
  etc:
    Type:      ConfigMap (a volume populated by a ConfigMap)
    Name:      conf
    Optional:  false
  host:
    Type:          HostPath (bare host directory volume)
    Path:          /srv
    HostPathType:  Directory
  key:
    Type:        Secret (a volume populated by a Secret)
    SecretName:  s
    Optional:    true
  me:
    Type:   DownwardAPI (a volume populated by information about the pod)
    Items:  metadata.name -> name
  all:
    Type:           Projected (a volume that contains injected data from multiple sources)
    SecretName:     s
    ConfigMapName:  c
    Optional:       false
  disk:
    Type:  <unknown>
QoS Class:"""


def test_containers_are_described_with_environment_and_mounts() -> None:
    text = describe_pod_text(decode(POD, Pod), [], {}, Instant(0))
    assert EXPECTED in text, text


def test_events_have_a_line_below_the_headers() -> None:
    event = {
        "type": "Normal",
        "reason": "Started",
        "message": "Container started",
        "count": 1,
        "firstTimestamp": "1970-01-01T00:00:00Z",
        "lastTimestamp": "1970-01-01T00:00:00Z",
        "source": {"component": "nodewright"},
    }
    text = describe_pod_text(decode(POD, Pod), [event], {}, Instant(5 * 10**9))
    assert text.partition("Events:\n")[2].splitlines() == [
        "  Type     Reason    Age    From         Message",
        "  ----     ------    ----   ----         -------",
        "  Normal   Started   5s     nodewright   Container started",
    ]


def test_addresses_are_printed_as_kubectl_prints_them() -> None:
    pod = decode(POD, Pod)
    alone = describe_pod_text(pod, [], {}, Instant(0)).splitlines()
    assert [line.split() for line in alone if line.startswith("IP")] == [["IP:"], ["IPs:", "<none>"]]
    with_address = describe_pod_text(
        replace(pod, status=replace(pod.status, pod_ip="10.1.2.3")), [], {}, Instant(0)
    ).splitlines()
    index = next(number for number, line in enumerate(with_address) if line.startswith("IP:"))
    assert [line.split() for line in with_address[index : index + 3]] == [
        ["IP:", "10.1.2.3"],
        ["IPs:"],
        ["IP:", "10.1.2.3"],
    ]


def test_texts_of_containers_add_no_lines() -> None:
    def described(text: str) -> str:
        container = {
            "name": "idle",
            "image": "pause",
            "command": [text],
            "env": [{"name": "A", "value": text}],
        }
        ended = {"terminated": {"exitCode": 1, "reason": "Error", "message": text}}
        status = {
            "containerStatuses": [{"name": "idle", "state": ended, "lastState": ended}],
            "message": text,
        }
        meta = {"name": "web", "namespace": "shop", "annotations": {"a": text}, "labels": {"b": text}}
        pod = {"metadata": meta, "spec": {"containers": [container]}, "status": status}
        return describe_pod_text(decode(pod, Pod), [], {"text": "decision: active\n"}, Instant(0))

    hostile = described("x\n\x1b[2J\x9b\u202e\u2028::error::y")
    assert hostile.count("\n") == described("x").count("\n")
    assert hostile.replace("\n", "").isprintable()
    assert hostile.count(r"x\n\x1b[2J\x9b\u202e\u2028::error::y") == 7
