"""What the API server has against new objects of Dynamic Resource Allocation."""

from typing import Any

import pytest

from nodewright.documents.formats.decode import decode
from nodewright.documents.formats.kubectl_yaml import read_yaml
from nodewright.engine.admission.validation.device_objects import device_object_violations
from nodewright.engine.admission.validation.violation import violation_fault


def faults(kind: str, spec: str) -> list[str]:
    """The faults of an object with this spec, each cut to the text before the first rule about a regular expression."""
    document: dict[str, Any] = {"kind": kind, "spec": read_yaml(spec, "spec")[0]}
    found = map(str, map(violation_fault, device_object_violations(document, decode)))
    return [each.partition(" must consist of")[0] for each in found]


SOUND = {
    "ResourceClaim": """
        {}
        {devices: {requests: [{name: gpu, exactly: {deviceClassName: gpu}}]}}
        {devices: {requests: [{name: gpu, exactly: {deviceClassName: gpu, allocationMode: All, adminAccess: true}}]}}
        {devices: {requests: [{name: a, firstAvailable: [{name: b, deviceClassName: gpu, count: 2}]}], constraints: [{requests: [a/b], matchAttribute: a.com/b}, {distinctAttribute: a.com/c}], config: [{requests: [a], opaque: {driver: A.com, parameters: {}}}]}}
        {devices: {requests: [{name: a, exactly: {deviceClassName: gpu, tolerations: [{operator: Exists}, {key: a.com/b, value: c, effect: NoExecute}]}}]}}
    """,
    "DeviceClass": """
        {}
        {extendedResourceName: example.com/gpu}
        {selectors: [{cel: {expression: 'device.driver == "a" && device.capacity["a"].b.isGreaterThan(quantity("1Gi"))'}}]}
    """,
    "ResourceSlice": """
        {driver: a.com, pool: {name: a/b, resourceSliceCount: 1}, nodeName: one}
        {driver: a.com, pool: {name: a, resourceSliceCount: 1}, allNodes: true, sharedCounters: [{name: a, counters: {m: {value: 1Gi}}}]}
        {driver: a.com, pool: {name: a, resourceSliceCount: 1}, nodeSelector: {nodeSelectorTerms: [{matchExpressions: [{key: a, operator: Exists}]}]}}
        {driver: a.com, pool: {name: a, resourceSliceCount: 1}, perDeviceNodeSelection: true, devices: [{name: d, nodeName: one, attributes: {a.com/b: {version: 1.0.0-a.b+c}, c: {int: 0}, d: {bool: false}}}]}
        {driver: a.com, pool: {name: a, resourceSliceCount: 1}, nodeName: one, devices: [{name: d, allowMultipleAllocations: true, capacity: {m: {value: 8Gi, requestPolicy: {default: 2Gi, validRange: {min: 1Gi, max: 8Gi, step: 1Gi}}}}}]}
        {driver: a.com, pool: {name: a, resourceSliceCount: 1}, nodeName: one, devices: [{name: d, allowMultipleAllocations: true, capacity: {m: {value: 8, requestPolicy: {default: 2, validValues: [1, 2, 8]}}}}]}
    """,
    "ResourceClaimTemplate": "{spec: {devices: {requests: [{name: a, exactly: {deviceClassName: gpu}}]}}}",
    "DeviceTaintRule": "{deviceSelector: {driver: a.com}, taint: {key: a, effect: None}}",
}


@pytest.mark.parametrize(
    ("kind", "spec"), [(kind, spec) for kind, specs in SOUND.items() for spec in specs.strip().split("\n")]
)
def test_sound_objects_have_no_faults(kind: str, spec: str) -> None:
    assert faults(kind, spec) == []


# A request of a claim  ->  its faults below spec.devices.requests[0], with " | " between them.
REQUESTS = """
    {}  ->  .name: Invalid value: "": a lowercase RFC 1123 label | : Required value: exactly one of `exactly` or `firstAvailable` is required
    {name: a, exactly: {}}  ->  .exactly.deviceClassName: Required value
    {name: a, exactly: {deviceClassName: b}, firstAvailable: [{}]}  ->  : Invalid value: null: exactly one of `exactly` or `firstAvailable` is required, but multiple fields are set
    {name: a, exactly: {deviceClassName: b, count: -2}}  ->  .exactly.count: Invalid value: -2: must be greater than zero
    {name: a, exactly: {deviceClassName: b, allocationMode: All, count: 1}}  ->  .exactly.count: Invalid value: 1: must not be specified when allocationMode is 'All'
    {name: a, exactly: {deviceClassName: b, allocationMode: Some}}  ->  .exactly.allocationMode: Unsupported value: "Some": supported values: "All", "ExactCount"
    {name: a, exactly: {deviceClassName: b, selectors: [{}]}}  ->  .exactly.selectors[0].cel: Required value
    {name: a, exactly: {deviceClassName: b, selectors: [{cel: {expression: "1"}}]}}  ->  .exactly.selectors[0].cel.expression: Invalid value: "1": must evaluate to bool or the unknown type, not int
    {name: a, exactly: {deviceClassName: b, selectors: [{cel: {expression: "device.drivr == 'a'"}}]}}  ->  .exactly.selectors[0].cel.expression: Invalid value: "device.drivr == 'a'": compilation failed: column 7: undefined field 'drivr'; did you mean `driver`?
    {name: a, exactly: {deviceClassName: b, tolerations: [{operator: Exists, value: c}]}}  ->  .exactly.tolerations[0].value: Invalid value: "c": must be empty for operator `Exists`
    {name: a, exactly: {deviceClassName: b, tolerations: [{operator: In, effect: Never}]}}  ->  .exactly.tolerations[0].operator: Unsupported value: "In": supported values: "Equal", "Exists" | .exactly.tolerations[0].effect: Unsupported value: "Never": supported values: "NoExecute", "NoSchedule", "None"
    {name: a, firstAvailable: [{name: b, deviceClassName: c}, {name: b, deviceClassName: c}]}  ->  .firstAvailable[1]: Duplicate value: "b"
"""


@pytest.mark.parametrize("line", REQUESTS.strip().splitlines())
def test_requests(line: str) -> None:
    request, _, expected = line.strip().partition("  ->  ")
    path = "spec.devices.requests[0]"
    assert faults("ResourceClaim", f"{{devices: {{requests: [{request}]}}}}") == [
        f"{path}{each}" for each in expected.split(" | ")
    ]
    in_template = f"{{spec: {{devices: {{requests: [{request}]}}}}}}"
    assert [each.replace("spec.spec.", "spec.") for each in faults("ResourceClaimTemplate", in_template)] == [
        f"{path}{each}" for each in expected.split(" | ")
    ]


# Fields of a claim beside a request `a` and a request `b` with the alternative `c`  ->  its faults below spec.devices.
CLAIMS = """
    constraints: [{}]  ->  .constraints[0]: Required value: exactly one of "matchAttribute" or "distinctAttribute" is required, but multiple fields are set
    constraints: [{matchAttribute: model}]  ->  .constraints[0].matchAttribute: Invalid value: "model": a fully qualified name must be a domain and a name separated by a slash
    constraints: [{matchAttribute: /model}]  ->  .constraints[0].matchAttribute: Invalid value: "": the domain must not be empty
    constraints: [{matchAttribute: a.com/}]  ->  .constraints[0].matchAttribute: Invalid value: "": the name must not be empty
    constraints: [{matchAttribute: a.com/b-c}]  ->  .constraints[0].matchAttribute: Invalid value: "b-c": a valid C identifier must start with alphabetic character or '_', followed by a string of alphanumeric characters or '_' (e.g. 'my_name',  or 'MY_NAME',  or 'MyName', regex used for validation is '[A-Za-z_][A-Za-z0-9_]*')
    constraints: [{matchAttribute: a.com/b, requests: [b/d]}]  ->  .constraints[0].requests[0]: Invalid value: "b/d": must be the name of a request in the claim or the name of a request and a subrequest separated by '/'
    constraints: [{matchAttribute: a.com/b, requests: [a, a]}]  ->  .constraints[0].requests[1]: Duplicate value: "a"
    config: [{requests: [b/c]}]  ->  .config[0].opaque: Required value
    config: [{opaque: {}}]  ->  .config[0].opaque.driver: Required value | .config[0].opaque.parameters: Required value
    config: [{opaque: {driver: a.com, parameters: [1]}}]  ->  .config[0].opaque.parameters: Invalid value: "<value omitted>": must be a valid JSON object
"""


@pytest.mark.parametrize("line", CLAIMS.strip().splitlines())
def test_constraints_and_parameters(line: str) -> None:
    fields, _, expected = line.strip().partition("  ->  ")
    requests = "[{name: a, exactly: {deviceClassName: x}}, {name: b, firstAvailable: [{name: c, deviceClassName: x}]}]"
    assert faults("ResourceClaim", f"{{devices: {{requests: {requests}, {fields}}}}}") == [
        f"spec.devices{each}" for each in expected.split(" | ")
    ]


# The kind and its spec; `{slice` begins one with driver and pool  ->  faults below spec.
OTHERS = """
    DeviceClass {extendedResourceName: gpu}  ->  .extendedResourceName: Invalid value: "gpu": must be a valid extended resource name
    DeviceClass {extendedResourceName: ""}  ->  .extendedResourceName: Invalid value: "": must be a valid extended resource name
    DeviceClass {config: [{}]}  ->  .config[0].opaque: Required value
    DeviceTaintRule {}  ->  .taint.key: Invalid value: "": name part must be non-empty | .taint.key: Invalid value: "": name part | .taint.effect: Required value
    DeviceTaintRule {deviceSelector: {pool: "", device: A}, taint: {key: a, effect: Soon}}  ->  .deviceSelector.pool: Required value | .deviceSelector.device: Invalid value: "A": a lowercase RFC 1123 label | .taint.effect: Unsupported value: "Soon": supported values: "NoExecute", "NoSchedule", "None"
    ResourceSlice {}  ->  .driver: Required value | .pool.name: Required value | .pool.resourceSliceCount: Invalid value: 0: must be greater than zero | : Required value: exactly one of `nodeName`, `nodeSelector`, `allNodes`, `perDeviceNodeSelection` is required
    ResourceSlice {slice, nodeName: "", allNodes: false}  ->  .nodeName: Invalid value: "": must be either unset or set to a non-empty string | .allNodes: Invalid value: false: must be either unset or set to true | : Required value: exactly one of `nodeName`, `nodeSelector`, `allNodes`, `perDeviceNodeSelection` is required
    ResourceSlice {slice, nodeName: one, allNodes: true}  ->  : Invalid value: "{`nodeName`, `allNodes`}": exactly one of `nodeName`, `nodeSelector`, `allNodes`, `perDeviceNodeSelection` is required, but multiple fields are set
    ResourceSlice {slice, nodeSelector: {}}  ->  .nodeSelector.nodeSelectorTerms: Required value: must have at least one node selector term | .nodeSelector.nodeSelectorTerms: Invalid value: null: must have exactly one node selector term
    ResourceSlice {slice, nodeSelector: {nodeSelectorTerms: [{}, {matchFields: [{key: metadata.name, operator: In, values: [a]}]}]}}  ->  .nodeSelector.nodeSelectorTerms: Invalid value: [{"MatchExpressions":null,"MatchFields":null},{"MatchExpressions":null,"MatchFields":[{"Key":"metadata.name","Operator":"In","Values":["a"]}]}]: must have exactly one node selector term
    ResourceSlice {slice, nodeName: one, devices: [], sharedCounters: [{}]}  ->  : Invalid value: "": only one of `sharedCounters` or `devices` is allowed | .sharedCounters[0].name: Required value | .sharedCounters[0].counters: Required value
"""


@pytest.mark.parametrize("line", OTHERS.strip().splitlines())
def test_other_kinds(line: str) -> None:
    head, _, expected = line.strip().partition("  ->  ")
    kind, _, spec = head.partition(" ")
    spec = spec.replace("{slice", "{driver: a.com, pool: {name: a, resourceSliceCount: 1}")
    assert faults(kind, spec) == [f"spec{each}" for each in expected.split(" | ")]


# A device  ->  its faults below spec.devices[0].
DEVICES = """
    {name: d, attributes: {a/b/c: {}}}  ->  .attributes[a/b/c]: Invalid value: "": exactly one value must be specified
    {name: d, attributes: {a: {int: 1, strings: []}}}  ->  .attributes[a].strings: Invalid value: []: must not be empty if specified | .attributes[a]: Invalid value: {"IntValue":1,"BoolValue":null,"StringValue":null,"VersionValue":null,"IntValues":null,"BoolValues":null,"StringValues":[],"VersionValues":null}: exactly one value must be specified
    {name: d, attributes: {a: {version: v1.2.3}, b: {versions: [1.0.0, "1"]}}}  ->  .attributes[a].version: Invalid value: "v1.2.3": must be a string compatible with semver.org spec 2.0.0 | .attributes[b].versions[1]: Invalid value: "1": must be a string compatible with semver.org spec 2.0.0
    {name: d, capacity: {m: {value: 1, requestPolicy: {}}}}  ->  .capacity[m].requestPolicy: Forbidden: allowMultipleAllocations must be true
    {name: d, taints: [{key: a}]}  ->  .taints[0].effect: Required value
    {name: d, consumesCounters: [{}]}  ->  .consumesCounters[0].counterSet: Required value | .consumesCounters[0].counters: Required value
    {name: d, nodeName: one}  ->  : Invalid value: null: `nodeName`, `nodeSelector` and `allNodes` can only be set if `perDeviceNodeSelection` is set to true in the ResourceSlice spec
    {name: d, bindingConditions: [a, a]}  ->  .bindingConditions[1]: Duplicate value: "a" | .bindingFailureConditions: Invalid value: null: bindingFailureConditions are required to use bindingConditions
    {name: d, bindingConditions: [a], bindingFailureConditions: [a]}  ->  .bindingFailureConditions[0]: Invalid value: "a": bindingFailureConditions must not overlap with bindingConditions
    {name: d, bindingFailureConditions: [a]}  ->  .bindingConditions: Invalid value: null: bindingConditions are required to use bindingFailureConditions
    {name: d, nodeAllocatableResourceMappings: {cpu: {capacityKey: c, allocationMultiplier: 0}, a.com/b: {capacityKey: ""}}}  ->  .nodeAllocatableResourceMappings[a.com/b]: Invalid value: "a.com/b": must be a node allocatable resource name | .nodeAllocatableResourceMappings[a.com/b].capacityKey: Invalid value: "": capacityKey must not be an empty string | .nodeAllocatableResourceMappings[cpu].allocationMultiplier: Invalid value: "0": must be positive | .nodeAllocatableResourceMappings[cpu].capacityKey: Not found: "c"
"""


@pytest.mark.parametrize("line", DEVICES.strip().splitlines())
def test_devices(line: str) -> None:
    device, _, expected = line.strip().partition("  ->  ")
    spec = f"{{driver: a.com, pool: {{name: a, resourceSliceCount: 1}}, nodeName: one, devices: [{device}]}}"
    assert faults("ResourceSlice", spec) == [f"spec.devices[0]{each}" for each in expected.split(" | ")]


# A policy for requests of a capacity of 8  ->  its faults below the policy.
POLICIES = """
    {validValues: [1]}  ->  .default: Required value: required when validValues is defined
    {default: 1, validValues: [1], validRange: {}}  ->  : Forbidden: exactly one policy can be specified, cannot specify "validValues" and "validRange" at the same time
    {default: 3, validValues: [2, 1, 2, 9]}  ->  .validValues[1]: Invalid value: "1": values must be sorted in ascending order | .validValues[3]: Invalid value: "9": option is larger than capacity value: 8 | .validValues[2]: Duplicate value: "2" | .validValues: Invalid value: "3": default value is not valid according to the requestPolicy
    {default: 1, validRange: {}}  ->  .validRange.min: Required value: required when validRange is defined
    {validRange: {min: 1}}  ->  .default: Required value: required when validRange is defined
    {default: 10, validRange: {min: 12, max: 9}}  ->  .validRange.min: Invalid value: "12": min is larger than capacity value: 8 | .validRange.min: Invalid value: "10": default is less than min: 12 | .validRange.max: Invalid value: "12": min is larger than max: 9 | .validRange.max: Invalid value: "9": max is larger than capacity value: 8 | .validRange.max: Invalid value: "10": default is more than max: 9
    {default: 4, validRange: {min: 1, max: 6, step: 2}}  ->  .validRange.step: Invalid value: "4": value is not a multiple of a given step (2) from (1) | .validRange.step: Invalid value: "6": value is not a multiple of a given step (2) from (1)
    {default: 1, validRange: {min: 1, step: 8}}  ->  .validRange.step: Invalid value: "8": one step 9 is larger than capacity value: 8
"""


@pytest.mark.parametrize("line", POLICIES.strip().splitlines())
def test_request_policies(line: str) -> None:
    policy, _, expected = line.strip().partition("  ->  ")
    spec = (
        "{driver: a.com, pool: {name: a, resourceSliceCount: 1}, nodeName: one, devices: "
        f"[{{name: d, allowMultipleAllocations: true, capacity: {{m: {{value: 8, requestPolicy: {policy}}}}}}}]}}"
    )
    path = "spec.devices[0].capacity[m].requestPolicy"
    assert faults("ResourceSlice", spec) == [f"{path}{each}" for each in expected.split(" | ")]


@pytest.mark.parametrize(
    ("fields", "path", "count", "most"),
    [
        ("[{}]", "", 129, 128),
        ("[{taints: [{key: a, effect: None}]}]", "", 65, 64),
        ("[{attributes: {a: {strings: [b]}}}]", "", 65, 64),
    ],
)
def test_a_slice_has_fewer_devices_with_details(fields: str, path: str, count: int, most: int) -> None:
    device = read_yaml(fields, "devices")[0][0]
    spec = {
        "driver": "a.com",
        "pool": {"name": "a", "resourceSliceCount": 1},
        "nodeName": "one",
    }
    for number in (most, count):
        devices = [{"name": f"d{index}", **device} for index in range(number)]
        document = {"kind": "ResourceSlice", "spec": {**spec, "devices": devices}}
        found = [str(violation_fault(each)) for each in device_object_violations(document, decode)]
        too_many = [f"spec.devices{path}: Too many: {count}: must have at most {most} items"]
        assert found == (too_many if number > most else [])


@pytest.mark.parametrize(
    ("device", "rule"),
    [
        (
            {"attributes": {f"a{index}": {"int": 1} for index in range(20)}, "capacity": {f"c{index}": {} for index in range(13)}},
            "spec.devices[0]: Invalid value: 33: the total number of attributes and capacities must not exceed 32",
        ),
        (
            {"attributes": {"a": {"ints": [1] * 48}, "b": {"int": 1}}},
            "spec.devices[0]: Invalid value: 49: the total number of attribute values must not exceed 48",
        ),
        ({"attributes": {"a": {"string": "x" * 65}}}, "spec.devices[0].attributes[a].string: Too long: may not be more than 64 bytes"),
        ({"attributes": {"a" * 33: {"int": 1}}}, "spec.devices[0].attributes: Too long: may not be more than 32 bytes"),
    ],
)  # fmt: skip
def test_sizes_of_devices_are_bounded(device: dict[str, Any], rule: str) -> None:
    spec = {"driver": "a.com", "pool": {"name": "a", "resourceSliceCount": 1}, "nodeName": "one"}
    document = {"kind": "ResourceSlice", "spec": {**spec, "devices": [{"name": "d", **device}]}}
    assert [str(violation_fault(each)) for each in device_object_violations(document, decode)] == [rule]


def test_expressions_and_parameters_are_bounded() -> None:
    long_expression = "true" + " " * 10_240
    spec = {
        "selectors": [{"cel": {"expression": long_expression}}],
        "config": [{"opaque": {"driver": "a.com", "parameters": {"a": "x" * 10_240}}}],
    }
    document = {"kind": "DeviceClass", "spec": spec}
    assert [str(violation_fault(each)) for each in device_object_violations(document, decode)] == [
        "spec.selectors[0].cel.expression: Too long: may not be more than 10240 bytes",
        "spec.config[0].opaque.parameters: Too long: may not be more than 10240 bytes",
    ]
