"""Rules about claims for devices: their selectors, classes and allocation modes."""

from collections.abc import Iterator
from difflib import get_close_matches
from functools import lru_cache
from typing import TYPE_CHECKING

from nodewright.model.kubernetes.claims import DeviceClass
from nodewright.model.printable import counted
from nodewright.model.values.instant import ZERO_TIME, Instant
from nodewright.predict.lint.lint_model import (
    ConfigSubject,
    DeviceSubject,
    FieldViolation,
    LintContext,
    Severity,
    SuggestedEdit,
    lint_rule,
)

if TYPE_CHECKING:
    from nodewright.predict.lint.selector_review import SelectorReview

_CPU_DRIVER = "dra.cpu"


@lint_rule("NW501", Severity.WARNING, DeviceSubject)
def _misspelt_name(subject: DeviceSubject, context: LintContext) -> Iterator[FieldViolation]:
    """A selector or a constraint names an attribute or a capacity that no device has.

    Finding: {text}

    A name that a device does not have is an error when the selector is evaluated, and the pod stays Pending with
    "no such key" in its events; behind `has()` or `.?` the selector is silently false. A constraint (`matchAttribute`,
    `distinctAttribute`) refuses all devices without its attribute. The names are those of the ResourceSlices among the
    files; without slices of a driver, those that a known driver (gpu.nvidia.com) publishes.

    Remedy: Write the name as the driver publishes it.

    ```diff
     apiVersion: resource.k8s.io/v1
     kind: ResourceSlice
     metadata:
       name: node-1-gpus
     spec:
       driver: gpu.example.com
       pool: {name: node-1, resourceSliceCount: 1}
       nodeName: node-1
       devices:
       - name: gpu-0
         capacity:
           memory: {value: 80Gi}
     ---
     apiVersion: resource.k8s.io/v1
     kind: ResourceClaimTemplate
     metadata:
       name: large-gpu
     spec:
       spec:
         devices:
           requests:
           - name: gpu
             exactly:
               deviceClassName: gpu.example.com
               selectors:
               - cel:
    -              expression: device.capacity["gpu.example.com"].memry.isGreaterThan(quantity("40Gi"))
    +              expression: device.capacity["gpu.example.com"].memory.isGreaterThan(quantity("40Gi"))
    ```
    """
    for request in subject.requests:
        for index, expression in enumerate(request.selectors):
            for text in _review(context).misspelt(expression):
                yield FieldViolation(path=request.expression_path(index), facts={"text": text})
    spec, path = subject.document.get("spec") or {}, "spec"
    if subject.kind == "ResourceClaimTemplate":
        spec, path = spec.get("spec") or {}, "spec.spec"
    for index, constraint in enumerate((spec.get("devices") or {}).get("constraints") or ()):
        for field in ("matchAttribute", "distinctAttribute"):
            if text := _review(context).misspelt_attribute(constraint.get(field) or ""):
                place = f"{path}.devices.constraints[{index}].{field}"
                yield FieldViolation(path=place, facts={"text": text})


@lint_rule("NW502", Severity.WARNING, DeviceSubject)
def _meets_nothing(subject: DeviceSubject, context: LintContext) -> Iterator[FieldViolation]:
    """A selector that no device of the given slices meets.

    Finding: none of the {devices} meets the selector, so nothing is allocated

    The selector is evaluated for the devices of all ResourceSlices among the files: that of a class for all of them,
    that of a request for those that meet the selectors of its class. The pods of such a claim stay Pending with
    "cannot allocate all claims".

    Remedy: Compare the selector with the attributes and capacities in the slices.

    ```diff
     apiVersion: resource.k8s.io/v1
     kind: ResourceSlice
     metadata:
       name: node-1-gpus
     spec:
       driver: gpu.example.com
       pool: {name: node-1, resourceSliceCount: 1}
       nodeName: node-1
       devices:
       - name: gpu-0
         attributes:
           model: {string: A100-SXM4-80GB}
     ---
     apiVersion: resource.k8s.io/v1
     kind: ResourceClaim
     metadata:
       name: a100
     spec:
       devices:
         requests:
         - name: gpu
           exactly:
             deviceClassName: gpu.example.com
             selectors:
             - cel:
    -            expression: device.attributes["gpu.example.com"].model == "A100"
    +            expression: device.attributes["gpu.example.com"].model.startsWith("A100")
    ```
    """
    is_class = subject.kind == "DeviceClass"
    for request in subject.requests if context.slices else ():
        is_known = not is_class and request.class_name in context.classes
        for index, expression in enumerate(request.selectors):
            count = _review(context).refused_devices(expression, request.class_name if is_known else "")
            if count:
                what = f"{counted(count, 'device')}{f' of class {request.class_name}' if is_known else ''}"
                facts = {"devices": f"{what} in the given slices"}
                yield FieldViolation(path=request.expression_path(index), facts=facts)


@lint_rule("NW503", Severity.WARNING, DeviceSubject)
def _no_class(subject: DeviceSubject, context: LintContext) -> Iterator[FieldViolation]:
    """A class that is not among the given ones.

    Finding: no DeviceClass {name} is among the files{meant}; without it the pods of the claim are not scheduled

    Claims may name classes that do not exist yet; until then their pods are unschedulable: "device class ... does not
    exist". The rule applies when there are DeviceClasses among the files.

    Remedy: Correct the name, or create the class.

    ```diff
     apiVersion: resource.k8s.io/v1
     kind: DeviceClass
     metadata:
       name: gpu.example.com
     ---
     apiVersion: resource.k8s.io/v1
     kind: ResourceClaim
     metadata:
       name: gpu
     spec:
       devices:
         requests:
         - name: gpu
           exactly:
    -        deviceClassName: gpus.example.com
    +        deviceClassName: gpu.example.com
    ```
    """
    for request in subject.requests if context.classes else ():
        if request.class_name not in context.classes:
            path = f"{request.path}.deviceClassName"
            close = get_close_matches(request.class_name, context.classes, n=1)
            facts = {"name": request.class_name, "meant": f"; did you mean {close[0]}?" if close else ""}
            edits = (SuggestedEdit(path, close[0]),) if close else ()
            yield FieldViolation(path=path, facts=facts, edits=edits)


@lint_rule("NW504", Severity.INFO, DeviceSubject)
def _all_devices(subject: DeviceSubject, _context: LintContext) -> Iterator[FieldViolation]:
    """A request takes all devices of its class.

    Finding: the request takes every device of class {name} that its node can use: none is allocated while one of them
    is in use, or if a claim would get more than 32

    With `allocationMode: All` and without a selector of its own, a request is for whatever the class matches, on nodes
    with one device as on nodes with eight. A claim has at most 32 devices. With `adminAccess` devices in use do not
    count, and the rule does not apply.

    Remedy: Request a count, or select the devices.

    ```diff
     apiVersion: resource.k8s.io/v1
     kind: ResourceClaim
     metadata:
       name: gpus
     spec:
       devices:
         requests:
         - name: gpus
           exactly:
             deviceClassName: gpu.example.com
    -        allocationMode: All
    +        count: 8
    ```
    """
    for request in subject.requests:
        if request.takes_all and not request.selectors:
            yield FieldViolation(path=f"{request.path}.allocationMode", facts={"name": request.class_name})


@lint_rule("NW505", Severity.WARNING, DeviceSubject)
def _served_twice(subject: DeviceSubject, context: LintContext) -> Iterator[FieldViolation]:
    """An extended resource that another class serves.

    Finding: DeviceClass {other} also names {resource}, and serves the pods that request it{why}

    Pods that request the extended resource get devices of one class only: of the class that was created last, and of
    classes that were created at the same time, of the one whose name sorts first.

    Remedy: Give each class an extended resource of its own.

    ```diff
     apiVersion: resource.k8s.io/v1
     kind: DeviceClass
     metadata:
       name: gpu-large
     spec:
    -  extendedResourceName: example.com/gpu
    +  extendedResourceName: example.com/gpu-large
     ---
     apiVersion: resource.k8s.io/v1
     kind: DeviceClass
     metadata:
       name: gpu
     spec:
       extendedResourceName: example.com/gpu
    ```
    """
    own = context.classes.get(subject.name) if subject.kind == "DeviceClass" else None
    resource = own.spec.extended_resource_name if own is not None else ""
    if own is None or not resource:
        return
    rivals = [each for each in context.classes.values() if each.spec.extended_resource_name == resource]
    # Kubernetes looks at the time first: of equally old classes the one with the lower name serves the resource.
    newest = max(map(_created, rivals))
    server = min(each.metadata.name for each in rivals if _created(each) == newest)
    if server != subject.name:
        facts = {
            "other": server,
            "resource": resource,
            "why": "" if newest > _created(own) else " if it is not older",
        }
        yield FieldViolation(path="spec.extendedResourceName", facts=facts)


@lint_rule("NW506", Severity.WARNING, ConfigSubject)
def _cpus_twice(config: ConfigSubject, context: LintContext) -> Iterator[FieldViolation]:
    """The static CPU policy beside claims for CPUs.

    Finding: {claims} for devices of dra.cpu, which does not work beside the static CPU policy: both assign exclusive
    CPUs, and neither knows those of the other

    The driver of CPUs (kubernetes-sigs/dra-driver-cpu) takes the place of the kubelet's CPU manager: on a node only one
    of them can be enabled. Its claims name the class `dra.cpu`, or another class that selects its devices.

    Remedy: Set the policy to none on the nodes of the driver, and remove the kubelet's CPU manager state there.

    ```diff
     apiVersion: kubelet.config.k8s.io/v1beta1
     kind: KubeletConfiguration
    -cpuManagerPolicy: static
    -kubeReserved: {cpu: "1"}
    +cpuManagerPolicy: none
     ---
     apiVersion: resource.k8s.io/v1
     kind: ResourceClaim
     metadata:
       name: cpus
     spec:
       devices:
         requests:
         - name: cpus
           exactly:
             deviceClassName: dra.cpu
             count: 4
    ```
    """
    claims = [
        f"{claim.kind} {claim.full_name}"
        for claim in context.claims
        if any(_is_for_cpus(request.class_name, context) for request in claim.requests)
    ]
    if config.is_static_cpu and claims:
        shown = (
            claims[0] if len(claims) == 1 else f"{claims[0]} and {counted(len(claims) - 1, 'other object')}"
        )
        facts = {"claims": f"{shown} {'ask' if claims[1:] else 'asks'}"}
        yield FieldViolation(path=f"{config.prefix}cpuManagerPolicy", facts=facts)


def _is_for_cpus(class_name: str, context: LintContext) -> bool:
    """Whether the class is that of the CPU driver; a class that is given selects its devices by the driver's name."""
    if class_name not in context.classes:
        return class_name == _CPU_DRIVER
    selectors = context.classes[class_name].spec.selectors
    return any(
        selector.cel and f"{_CPU_DRIVER!r}" in selector.cel.expression.replace('"', "'")
        for selector in selectors
    )


def _created(device_class: DeviceClass) -> Instant:
    return device_class.metadata.creation_timestamp or ZERO_TIME


@lru_cache(maxsize=1)
def _review(context: LintContext) -> "SelectorReview":
    from nodewright.predict.lint.selector_review import (  # noqa: PLC0415 - start-up time without claims
        SelectorReview,
    )

    return SelectorReview(context.slices, context.classes)
