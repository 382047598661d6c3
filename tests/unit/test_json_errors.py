"""Every reading of JSON expects JSON that is nested too deeply: Python raises for it what it does not for other faults."""

import ast
import json
from pathlib import Path

import pytest

from nodewright.agent.rules.image_policy import logins_of_config
from nodewright.documents.formats.decode import decode
from nodewright.documents.profiles.state_files.pod_resource_state import _Checkpoint, _parsed
from nodewright.engine.admission.validation.pod_spec import pod_violations
from nodewright.model.errors import JSON_ERRORS, InputError
from nodewright.model.kubernetes.objects import Pod
from nodewright.predict.lint.lint_settings import read_baseline
from tools.source import PACKAGE

DEEP, WITHIN_GO = ('{"a":' * depth + "1" + "}" * depth for depth in (200_000, 5_000))
READERS = ("json.loads", "msgspec.json.decode")
EXPECTING = ("RecursionError", "JSON_ERRORS", "Exception")
NOT_FROM_OUTSIDE = {
    "agent/store/store_files.py": "a line has its checksum",
    "testing/conformance/vector_run.py": "the engine's own answer",
    "documents/formats/custom_resources.py": "a file of the package",
    "documents/formats/decode.py": "its callers expect the errors",
    "documents/formats/go_json.py": "one string",
    "cluster/pod_resources/snapshot.py": "printed by our own process",
    "scheduling/verdicts/export_reader.py": "its one public reader expects the errors",
    "documents/profiles/catalogue.py": "a file of the package",
}


def unexpecting_readers(tree: ast.Module) -> list[int]:
    """The lines of calls that are in no `try` or `with` that names the error."""
    parents = {child: node for node in ast.walk(tree) for child in ast.iter_child_nodes(node)}

    def is_expecting(node: ast.AST) -> bool:
        while node in parents:
            inner, node = node, parents[node]
            handlers = (
                [ast.unparse(handler) for handler in node.handlers] if isinstance(node, ast.Try) else []
            )
            contexts = [ast.unparse(item) for item in node.items] if isinstance(node, ast.With) else []
            is_body = isinstance(node, ast.With) or (isinstance(node, ast.Try) and inner in node.body)
            texts = (text.partition("\n")[0] for text in (*handlers, *contexts))
            if is_body and any(name in text for text in texts for name in EXPECTING):
                return True
        return False

    calls = (node for node in ast.walk(tree) if isinstance(node, ast.Call))
    return [call.lineno for call in calls if ast.unparse(call.func) in READERS and not is_expecting(call)]


def test_readers_of_json_expect_all_of_its_errors() -> None:
    texts = {path: path.read_text("utf-8") for path in sorted(PACKAGE.rglob("*.py"))}
    lines = {
        str(path.relative_to(PACKAGE)): numbers
        for path, text in texts.items()
        if any(reader in text for reader in READERS) and (numbers := unexpecting_readers(ast.parse(text)))
    }
    assert lines.keys() == NOT_FROM_OUTSIDE.keys(), lines


def test_deep_json_raises_one_of_them() -> None:
    with pytest.raises(JSON_ERRORS):
        json.loads(DEEP)


def test_an_annotation_may_be_nested_deeply() -> None:
    meta = {"name": "a", "annotations": {"scheduler.alpha.kubernetes.io/tolerations": "[" * 90_000}}
    spec = {"containers": [{"name": "a", "image": "x"}]}
    (violation,) = pod_violations(decode({"metadata": meta, "spec": spec}, Pod))
    assert violation.path == "metadata.annotations"


def test_credentials_of_a_registry_may_be_nested_deeply() -> None:
    with pytest.raises(ValueError, match="unmarshal json"):
        logins_of_config(DEEP.encode())


def test_a_state_file_of_pods_may_be_nested_deeply() -> None:
    assert _parsed(DEEP, _Checkpoint) == "invalid character '{' exceeded max depth"
    # As the kubelet does where this release of Python reads as deep.
    assert _parsed(WITHIN_GO, _Checkpoint) in ({}, "exceeded max depth")


def test_a_baseline_may_be_nested_deeply(tmp_path: Path) -> None:
    (tmp_path / "baseline.json").write_text(f'{{"findings":[{DEEP}]}}')
    with pytest.raises(InputError, match="is not a baseline"):
        read_baseline(tmp_path / "baseline.json")
