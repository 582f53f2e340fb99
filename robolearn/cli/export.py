"""``robolearn export``: a policy as an ONNX file, compared with what torch computes."""

from __future__ import annotations

import time
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Literal

from robolearn.core import BadInput
from robolearn.io.atomic import write_bytes
from robolearn.runs.command import Command


@dataclass(frozen=True, kw_only=True)
class Export(Command):
    """Write a policy as an ONNX file: pictures (uint8) and vectors in the world's units and noise in, actions out.

    The file also says what the policy sees and commands, so that `evaluate --policy FILE.onnx` and `deploy --policy
    FILE.onnx` take it as they take a run. Its actions are compared with torch's before it is written.
    """

    policy: Path
    """A run folder or a checkpoint folder."""
    out: Path
    """The file, FILE.onnx; one that is there is replaced."""
    precision: Literal["float32", "int8"] = "float32"
    """float32, or int8: matrix products by onnxruntime's dynamic quantisation."""
    tolerance: float | None = None
    """Largest difference of an action, which lies in [-1, 1], from torch's; by default 1e-4, of int8 0.2. More is
    refused."""

    def run(self) -> dict[str, Any]:
        from policies.storage.onnx_policy import SUFFIX, is_onnx, need_onnx

        if not is_onnx(self.out):
            raise BadInput("--out", got=self.out, expected=f"a name that ends in {SUFFIX}")
        if self.out.is_dir():
            raise BadInput("--out", got=f"{self.out}, a folder", expected="a file")
        if is_onnx(self.policy):
            raise BadInput("--policy", got=f"{self.policy}, which is exported", expected="a run or checkpoint folder")
        if self.tolerance is not None and not self.tolerance > 0:
            raise BadInput("--tolerance", got=self.tolerance, expected="more than 0")
        need_onnx("onnx", "onnxscript", "onnxruntime")
        from policies.storage.checkpoint import load_policy
        from policies.storage.onnx_export import export_onnx

        begun = time.perf_counter()
        made = export_onnx(load_policy(self.policy), precision=self.precision, tolerance=self.tolerance)
        self.out.parent.mkdir(parents=True, exist_ok=True)
        write_bytes(self.out, made.content)
        return {
            "policy": str(self.policy),
            "file": str(self.out),
            "bytes": len(made.content),
            "precision": self.precision,
            "max_difference": made.max_difference,
            "inputs": {key: list(shape) for key, shape in made.inputs.items()},
            "wall_s": {"total": time.perf_counter() - begun},
        }

    def show(self, result: Mapping[str, Any], console: Any) -> None:
        r = result
        console.print(f"file        {r['file']}: {r['bytes'] / 1e6:.1f} MB, {r['precision']}")
        inputs = ", ".join(f"{key} {' x '.join(map(str, shape))}" for key, shape in r["inputs"].items())
        console.print(f"takes       {inputs}")
        console.print(f"differs     by at most {r['max_difference']:.1e} from torch's actions, which lie in [-1, 1]")
        console.print(f"next        robolearn evaluate --policy {r['file']} --task … : as a run is evaluated")
