"""What ONNX takes, where it is not installed."""

from __future__ import annotations

import importlib

from robolearn.core import BadInput


def need_onnx(*modules: str) -> None:
    """Raise `BadInput` for the first of the `modules` of the extra onnx that is not installed."""
    for name in modules:
        try:
            importlib.import_module(name)
        except ImportError:
            raise BadInput("ONNX", got=f"no {name}", expected="it installed: pip install '.[onnx]'") from None
