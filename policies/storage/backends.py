"""What computes a policy's decisions: torch as it is, a compiled graph, or onnxruntime.

The policy stays the same object with the same history, noise and checks; only the function from features and noise to
actions is another one, so that what is measured is what acts. Knows no torch until a backend is made.
"""

from __future__ import annotations

from collections.abc import Mapping
from contextlib import nullcontext
from typing import TYPE_CHECKING, Any, Literal, get_args

import numpy as np
from numpy.typing import NDArray

from robolearn.core import BadInput
from robolearn.core.device import resolve_device

if TYPE_CHECKING:
    from policies.policy import TorchPolicy

BackendName = Literal["torch", "compile", "onnx"]
InferencePrecision = Literal["float32", "bfloat16", "int8"]
PRECISIONS: dict[str, tuple[str, ...]] = {
    "torch": ("float32", "bfloat16"),
    "compile": ("float32", "bfloat16"),
    "onnx": ("float32", "int8"),
}
"""Backend → what it may compute with. onnxruntime has no bfloat16 on CPUs; int8 is its dynamic quantisation."""


def check_backend(backend: str, precision: str) -> None:
    """Raise `BadInput` unless there is such a backend, and it computes with that precision."""
    if backend not in get_args(BackendName):
        raise BadInput("--backend", got=backend, available=get_args(BackendName))
    if precision not in PRECISIONS[backend]:
        raise BadInput(f"--precision with --backend {backend}", got=precision, available=PRECISIONS[backend])


def backend_device(backend: str, device: str) -> str:
    """`device` as torch names it; onnxruntime computes on the CPU, which auto then means.

    Raises:
      BadInput: no such device, or a GPU for onnxruntime.
    """
    if backend != "onnx":
        return resolve_device(device)
    if device not in ("auto", "cpu"):
        raise BadInput("--device with --backend onnx", got=device, available=("auto", "cpu"))
    return "cpu"


def use_backend(policy: TorchPolicy, backend: str, precision: str = "float32") -> TorchPolicy:
    """Let `backend` compute the decisions of `policy`, which is returned.

    Compiling and exporting take seconds; the compiler takes them at the first decision for each number of worlds.

    Raises:
      BadInput: no such backend or precision, an extra that is not installed, a policy on a GPU for onnxruntime, or a
        graph whose actions are not those of torch.
    """
    check_backend(backend, precision)
    if backend == "torch":
        policy.backend = None if precision == "float32" else _Torch(policy, policy.decide, precision)
    elif backend == "compile":
        policy.backend = _Torch(policy, _compiled(policy), precision)
    else:
        from policies.storage.onnx_export import export_onnx
        from policies.storage.onnx_policy import OnnxSession

        policy.backend = OnnxSession(export_onnx(policy, precision=precision).content)
    return policy


class _Torch:
    """A backend of torch: `decide` on the policy's device, in bfloat16 where torch holds that to be safe."""

    def __init__(self, policy: TorchPolicy, decide: Any, precision: str) -> None:
        self._device, self._decide, self._bfloat16 = policy.device, decide, precision == "bfloat16"

    def __call__(self, observation: Mapping[str, NDArray], noise: NDArray) -> NDArray[np.float32]:
        import torch

        tensors = {key: torch.from_numpy(value).to(self._device) for key, value in observation.items()}
        mixed = torch.autocast(self._device.type, torch.bfloat16) if self._bfloat16 else nullcontext()
        with torch.inference_mode(), mixed:
            actions = self._decide(tensors, torch.from_numpy(noise).to(self._device))
        return actions.float().cpu().numpy()


def _compiled(policy: TorchPolicy) -> Any:
    """`policy.decide`, compiled by inductor for each number of worlds by itself; on a GPU as CUDA graphs."""
    import torch

    from policies.storage.onnx_export import Decision

    # Inductor's cache on disk holds pickles, in a folder that others can guess.
    options: dict[str, Any] = {"fx_graph_cache": False, "triton.cudagraphs": policy.device.type == "cuda"}
    return torch.compile(Decision(policy), dynamic=False, options=options)
