"""Selectors of devices: CEL expressions as Kubernetes' scheduler compiles and evaluates them."""

from nodewright.engine.core.claims.cel.explanation import DeviceName, device_names, explain_selector_error
from nodewright.engine.core.claims.cel.selectors import (
    CompiledSelector,
    SelectorDevice,
    SelectorError,
    SelectorFeatures,
    compile_selector,
)

__all__ = (
    "CompiledSelector",
    "DeviceName",
    "SelectorDevice",
    "SelectorError",
    "SelectorFeatures",
    "compile_selector",
    "device_names",
    "explain_selector_error",
)
