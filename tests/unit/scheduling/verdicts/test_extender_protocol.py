"""The messages of kube-scheduler's extender protocol, as Go writes and reads them."""

import json
from typing import Any

import pytest

from nodewright.model.errors import InputError
from nodewright.scheduling.verdicts.extender_protocol import (
    BindCall,
    binding_result,
    decode_binding,
    decode_call,
    decode_preemption,
    filter_error,
    filter_result,
    preemption_result,
    priority_list,
)
from nodewright.scheduling.verdicts.placement_decisions import FilteredNodes, ProposedVictims

POD = {"metadata": {"name": "a", "uid": "u"}, "spec": {"containers": [{"name": "c", "resources": {}}]}}


def encoded(document: Any) -> bytes:
    return json.dumps(document).encode()


def test_names_are_answered_with_names() -> None:
    call = decode_call(encoded({"Pod": POD, "Nodes": None, "NodeNames": ["n1", "n2", "n3"]}))
    assert (call.query.uid, call.candidates.names) == ("u", ("n1", "n2", "n3"))
    answer = FilteredNodes(passed=("n1",), failed={"n2": "x"}, unresolvable={"n3": "y"}, decisions={})
    assert json.loads(filter_result(answer, call.candidates)) == {
        "Nodes": None,
        "NodeNames": ["n1"],
        "FailedNodes": {"n2": "x"},
        "FailedAndUnresolvableNodes": {"n3": "y"},
        "Error": "",
    }


def test_objects_are_answered_with_the_same_objects() -> None:
    nodes = [{"metadata": {"name": name}, "status": {"odd": [1.5]}} for name in ("n1", "n2")]
    call = decode_call(encoded({"Pod": POD, "Nodes": {"metadata": {}, "items": nodes}, "NodeNames": None}))
    answer = FilteredNodes(passed=("n2",), failed={"n1": "x"}, unresolvable={}, decisions={})
    result = json.loads(filter_result(answer, call.candidates))
    assert (result["Nodes"], result["NodeNames"]) == ({"items": [nodes[1]]}, None)


def test_preemption_by_uid_and_by_object() -> None:
    meta = {"Pod": POD, "NodeNameToMetaVictims": {"n1": {"Pods": [{"UID": "v"}], "NumPDBViolations": 2}}}
    full = {
        "Pod": POD,
        "NodeNameToVictims": {"n1": {"Pods": [{"metadata": {"uid": "v"}}], "NumPDBViolations": 2}},
    }
    expected = {"n1": ProposedVictims(("v",), 2)}
    assert decode_preemption(encoded(meta)).proposals == expected
    assert decode_preemption(encoded({**full, "NodeNameToMetaVictims": None})).proposals == expected
    assert json.loads(preemption_result(expected)) == {
        "NodeNameToMetaVictims": {"n1": {"Pods": [{"UID": "v"}], "NumPDBViolations": 2}}
    }


def test_binding_and_priorities() -> None:
    args = {"PodName": "a", "PodNamespace": "b", "PodUID": "u", "Node": "n"}
    assert decode_binding(encoded(args)) == BindCall(pod_name="a", pod_namespace="b", pod_uid="u", node="n")
    assert json.loads(binding_result("no")) == {"Error": "no"}
    assert json.loads(priority_list({"n1": 10})) == [{"Host": "n1", "Score": 10}]
    assert json.loads(filter_error("no"))["Error"] == "no"


@pytest.mark.parametrize(
    ("decoder", "body", "message"),
    [
        (decode_call, b"{", "not the expected JSON"),
        (decode_call, b"\xff", "not the expected JSON"),
        (decode_call, encoded({"NodeNames": []}), "missing required field `Pod`"),
        (decode_call, encoded({"Pod": POD}), "NodeNames: Required value"),
        (decode_call, encoded({"Pod": 7, "NodeNames": []}), "Pod: Invalid value: 7: must be an object"),
        (decode_call, encoded({"Pod": {"spec": {"containers": 3}}, "NodeNames": []}), "Pod.spec.containers"),
        (decode_call, encoded({"Pod": POD, "NodeNames": [1]}), "NodeNames[0]"),
        (decode_preemption, encoded({"Pod": POD}), "NodeNameToMetaVictims: Required value"),
        (decode_binding, encoded({"PodName": "a", "PodNamespace": "", "PodUID": "", "Node": "n"}), "PodUID"),
        (decode_binding, encoded([]), "ExtenderBindingArgs"),
    ],
)
def test_malformed_calls_are_errors_with_the_field(decoder: Any, body: bytes, message: str) -> None:
    with pytest.raises(InputError) as error:
        decoder(body)
    assert message in str(error.value)


def test_a_quantity_that_is_none_is_an_error_with_its_field() -> None:
    bad = {"spec": {"containers": [{"name": "c", "resources": {"requests": {"cpu": "two"}}}]}}
    with pytest.raises(InputError, match=r"Pod.spec.containers\[0\].resources.requests"):
        decode_call(encoded({"Pod": bad, "NodeNames": []}))
