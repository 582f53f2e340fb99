"""Backends, which compute a policy's decisions: torch as it is, a recorded or compiled graph, onnxruntime; listed in
`BACKENDS`.

The policy stays the same object with the same history, noise and checks; only the function from features and noise to
actions is another one, so that what is measured is what acts. No import of torch until a backend is built.
"""

from __future__ import annotations

import logging
import warnings
from collections.abc import Mapping
from contextlib import nullcontext
from dataclasses import dataclass
from typing import TYPE_CHECKING, Annotated, Any, ClassVar

import numpy as np
from numpy.typing import NDArray

from robolearn.core import BadInput, look_up
from robolearn.core.machine import resolve_device
from robolearn.core.switches import available

if TYPE_CHECKING:
    from policies.policy import Backend, TorchPolicy

log = logging.getLogger(__name__)

COMPARED = 8  # observations for which a recording has to give torch's own actions


@dataclass(frozen=True)
class BackendConfig:
    """A backend and its precision; a subclass of it, listed in `BACKENDS`. Raises `BadInput`: another precision."""

    name: ClassVar[str]  # of --backend
    precisions: ClassVar[tuple[str, ...]] = ("float32",)  # that it computes with, the usual one first
    on_cpu: ClassVar[bool] = False  # onnxruntime's CPU provider alone: "auto" is then the CPU

    precision: str = "float32"

    def __post_init__(self) -> None:
        if self.precision not in self.precisions:
            what = f"--precision with --backend {self.name}"
            raise BadInput(what, got=self.precision, available=self.precisions)

    def build(self, policy: TorchPolicy) -> Backend | None:
        """The function that computes the decisions of `policy`; None for its own `decide`."""
        raise NotImplementedError


class TorchBackend(BackendConfig):
    """torch, as trained."""

    name, precisions = "torch", ("float32", "bfloat16")

    def build(self, policy: TorchPolicy) -> Backend | None:
        return None if self.precision == "float32" else _Torch(policy, policy.decide, self.precision)


class TracedBackend(BackendConfig):
    """torch's own operations in their order, recorded for each number of worlds and replayed without Python between
    them: of a small network's time most is Python's, and an arm's node needs the interpreter for more than that."""

    name = "trace"

    def build(self, policy: TorchPolicy) -> Backend:
        return _Traced(policy)


class CompiledBackend(BackendConfig):
    """torch's compiler, for each number of worlds by itself; on a GPU as CUDA graphs."""

    name, precisions = "compile", ("float32", "bfloat16")

    def build(self, policy: TorchPolicy) -> Backend:
        import torch

        from policies.storage.onnx_export import DecisionModule

        # Inductor's cache on disk holds pickles, in a folder that others can guess.
        options: dict[str, Any] = {"fx_graph_cache": False, "triton.cudagraphs": policy.device.type == "cuda"}
        return _Torch(policy, torch.compile(DecisionModule(policy), dynamic=False, options=options), self.precision)


class OnnxBackend(BackendConfig):
    """onnxruntime on the CPU. It has no bfloat16 there; int8 is its dynamic quantisation."""

    name, precisions, on_cpu = "onnx", ("float32", "int8"), True

    def build(self, policy: TorchPolicy) -> Backend:
        from policies.storage.onnx_export import export_onnx
        from policies.storage.onnx_policy import OnnxSession

        return OnnxSession(export_onnx(policy, precision=self.precision).content)


BACKENDS: dict[str, type[BackendConfig]] = {
    config.name: config for config in (TorchBackend, TracedBackend, CompiledBackend, OnnxBackend)
}
BackendName = Annotated[str, available(lambda: BACKENDS)]
InferencePrecision = Annotated[
    str, available(lambda: dict.fromkeys(p for config in BACKENDS.values() for p in config.precisions))
]


def check_backend(backend: str, precision: str) -> BackendConfig:
    """The config of a backend; raises `BadInput` unless there is such a one, and it computes with that precision."""
    return look_up("--backend", backend, BACKENDS)(precision)


def backend_device(backend: str, device: str) -> str:
    """`device` as torch names it. Raises `BadInput`: no such device, or a GPU for a backend on the CPU."""
    if not BACKENDS[backend].on_cpu:
        return resolve_device(device)
    if device not in ("auto", "cpu"):
        raise BadInput(f"--device with --backend {backend}", got=device, expected="auto or cpu: it computes there")
    return "cpu"


def use_backend(policy: TorchPolicy, backend: str, precision: str = "float32") -> TorchPolicy:
    """Let `backend` compute the decisions of `policy`, which is returned.

    Compiling and exporting take seconds; the compiler takes them at the first decision for each number of worlds.
    Raises `BadInput`: no such backend or precision, an extra that is not installed, a policy on a GPU for onnxruntime,
    one around another maker's, or a graph whose actions are not those of torch.
    """
    policy.check_whole(f"--backend {backend}, --precision {precision}")
    policy.backend = check_backend(backend, precision).build(policy)
    return policy


def trace_if_same(policy: TorchPolicy) -> TorchPolicy:
    """Let the backend trace compute the decisions of `policy`, which is returned, unless its actions differ."""
    try:
        return use_backend(policy, TracedBackend.name)
    except BadInput as error:
        log.info("torch computes operation by operation: %s", error)
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


class _Traced:
    """A backend of torch's recorded operations. Raises `BadInput`: they depend on what was observed in the recording,
    and their actions are not torch's to the bit."""

    def __init__(self, policy: TorchPolicy) -> None:
        self._policy, self._graphs = policy, {}
        self._record(1)

    def __call__(self, observation: Mapping[str, NDArray], noise: NDArray) -> NDArray[np.float32]:
        return (self._graphs.get(len(noise)) or self._record(len(noise)))(observation, noise)

    def _record(self, worlds: int) -> Backend:
        import torch

        from policies.storage.onnx_export import example_inputs

        policy = self._policy
        learned = [weight for weight in policy.parameters() if weight.requires_grad]
        try:
            for weight in learned:  # a recording takes weights for constants
                weight.requires_grad_(False)
            with warnings.catch_warnings(), torch.no_grad():
                warnings.simplefilter("ignore")  # of each value that Python reads on the way
                example = example_inputs(policy, worlds)
                traced = torch.jit.trace(lambda *seen: policy.decide(*seen), example, strict=False, check_trace=False)
        except RuntimeError as error:
            what, got = f"--backend trace: a policy of kind {policy.config.name}", str(error).splitlines()[0]
            raise BadInput(what, got=got, expected="operations that torch can record") from None
        finally:
            for weight in learned:  # without, torch chooses other kernels, which round otherwise
                weight.requires_grad_(True)
        graph, eager = _Torch(policy, traced, "float32"), _Torch(policy, policy.decide, "float32")
        for seed in range(1, 1 + COMPARED):
            tensors, noise = example_inputs(policy, worlds, seed)
            inputs = {key: value.cpu().numpy() for key, value in tensors.items()}, noise.cpu().numpy()
            if (difference := np.abs(graph(*inputs) - eager(*inputs)).max()) > 0.0:
                what = "--backend trace: largest difference from torch's actions"
                raise BadInput(what, got=f"{difference:.3g}", expected="none")
        self._graphs[worlds] = graph
        return graph
