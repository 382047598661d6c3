"""The API server's validation of PriorityClasses and RuntimeClasses."""

from collections.abc import Iterator

from msgspec.structs import replace

from nodewright.engine.admission.admission_plugins import (
    HIGHEST_USER_DEFINABLE_PRIORITY,
    SYSTEM_PRIORITY_CLASS_PREFIX,
    SYSTEM_PRIORITY_CLASSES,
)
from nodewright.engine.admission.validation.pod_spec import pod_violations
from nodewright.engine.admission.validation.violation import ErrorType, Violation, metadata_violations
from nodewright.model.kubernetes.cluster_objects import PriorityClass, RuntimeClass
from nodewright.model.kubernetes.objects import Pod, PodSpec


def priority_class_violations(priority_class: PriorityClass) -> Iterator[Violation]:
    """The API server's validation errors of a PriorityClass.

    Follows: v1.36, pkg/apis/scheduling/validation/validation.go, ValidatePriorityClass.
    """
    yield from metadata_violations(priority_class.metadata)
    if priority_class.metadata.name.startswith(SYSTEM_PRIORITY_CLASS_PREFIX):
        if priority_class.metadata.name not in SYSTEM_PRIORITY_CLASSES:
            rule = "priority class names with 'system-' prefix are reserved for system use only"
            yield Violation("metadata.name", ErrorType.FORBIDDEN, rule=rule)
    elif priority_class.value > HIGHEST_USER_DEFINABLE_PRIORITY:
        rule = f"maximum allowed value of a user defined priority is {HIGHEST_USER_DEFINABLE_PRIORITY}"
        yield Violation("value", ErrorType.FORBIDDEN, rule=rule)


def runtime_class_violations(runtime_class: RuntimeClass) -> Iterator[Violation]:
    """The API server's validation errors of a RuntimeClass.

    Follows: v1.36, pkg/apis/node/validation/validation.go, ValidateRuntimeClass.
    """
    yield from metadata_violations(runtime_class.metadata)
    scheduling = runtime_class.scheduling
    spec = PodSpec(
        overhead=None if runtime_class.overhead is None else runtime_class.overhead.pod_fixed,
        node_selector=scheduling.node_selector,
        tolerations=scheduling.tolerations,
    )
    for violation in pod_violations(Pod(spec=spec), is_template=True):
        for pod_path, class_path in _RUNTIME_CLASS_PATHS.items():
            if violation.path.startswith(pod_path):
                yield replace(violation, path=class_path + violation.path.removeprefix(pod_path))


_RUNTIME_CLASS_PATHS = {
    "spec.overhead.limits": "overhead.podFixed",
    "spec.nodeSelector": "scheduling.nodeSelector",
    "spec.tolerations": "scheduling.tolerations",
}
