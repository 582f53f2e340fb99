"""A policy as an ONNX file: observation as the world gives it and standard normal noise in, actions out.

Normalisation is inside, so that pictures go in as uint8 and actions come out in the world's units; the noise is an
input, so that a file's actions are a function of its inputs. The same file says, as JSON in its metadata, what the
policy is: kind, settings and interface, as in a ``config.json``. It is protobuf, never pickle.
"""

from __future__ import annotations

import json
import logging
import tempfile
import warnings
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import torch
from torch import Tensor, nn

from policies.policy import TorchPolicy
from policies.registry import kind_to_json
from policies.storage.config_file import FORMAT, VERSION
from policies.storage.onnx_policy import CONFIG_KEY, NOISE, OnnxSession, need_onnx
from robolearn.core import BadInput, check_choice
from robolearn.core.specs import is_image

TRACED = 3  # worlds in the example: of 0 and 1 the exporter would take the number for a constant
COMPARED = 16  # worlds in which the file's actions are compared with torch's
LARGEST_DIFFERENCE = {"float32": 1e-4, "int8": 0.2}  # of an action, whose range is [-1, 1]
QUANTISED = ("MatMul", "Gemm")  # onnxruntime's integer convolutions are slower than its own in float32


@dataclass(frozen=True)
class OnnxExport:
    """A policy as an ONNX model."""

    content: bytes  # the file's bytes
    max_difference: float  # largest difference of an action from torch's, over random observations
    inputs: dict[str, tuple[int, ...]]  # name → shape of one world's input


def export_onnx(policy: TorchPolicy, *, precision: str = "float32", tolerance: float | None = None) -> OnnxExport:
    """`policy`, which is on the CPU, as an ONNX model.

    Args:
      precision: float32, or int8 (dynamic quantisation of its matrix products).
      tolerance: largest difference of an action from torch's; by default that of the precision.

    Raises:
      BadInput: a precision that there is not, the extra onnx is not installed, a policy that lies on a GPU, or actions
        that are not those of torch.
    """
    check_choice("ONNX: precision", precision, LARGEST_DIFFERENCE)
    if policy.device.type != "cpu":
        raise BadInput("ONNX: policy", got=f"one on {policy.device}", expected="one on the CPU")
    policy.check_whole("ONNX: policy")
    need_onnx("onnx", "onnxscript", "onnxruntime")
    model = _model(policy)
    if precision == "int8":
        model = _quantised(model)
    entry = model.metadata_props.add()
    entry.key, entry.value = CONFIG_KEY, json.dumps(
        {"format": FORMAT, "version": VERSION, **kind_to_json(policy), "interface": policy.interface.to_json(),
         "precision": precision}
    )  # fmt: skip
    content = model.SerializeToString()
    observation, noise = example_inputs(policy, COMPARED, seed=1)
    with torch.inference_mode():
        wanted = policy.decide(observation, noise).numpy()
    made = OnnxSession(content)({key: value.numpy() for key, value in observation.items()}, noise.numpy())
    difference = float(np.abs(made - wanted).max())
    limit = LARGEST_DIFFERENCE[precision] if tolerance is None else tolerance
    if not difference <= limit:
        raise BadInput(
            f"ONNX in {precision}: largest difference from torch's actions",
            got=f"{difference:.3g}",
            expected=f"at most {limit:g}",
        )
    inputs = {**{key: tuple(value.shape[1:]) for key, value in observation.items()}, NOISE: tuple(noise.shape[1:])}
    return OnnxExport(content, difference, inputs)


def _model(policy: TorchPolicy) -> Any:
    names = [*sorted(policy.interface.observation), NOISE]
    with warnings.catch_warnings(), quiet("torch.onnx", "torch.export", "onnxscript", "onnx_ir"):
        warnings.simplefilter("ignore")
        program = torch.onnx.export(
            decision_graph(policy), dynamo=True, input_names=names, output_names=["actions"], verbose=False
        )
    assert program is not None
    model = program.model_proto
    # The exporter writes down where the source lay on this machine.
    for node in (*model.graph.node, *(node for function in model.functions for node in function.node)):
        del node.metadata_props[:]
        node.ClearField("doc_string")
    for value in (*model.graph.value_info, *model.graph.input, *model.graph.output, *model.graph.initializer):
        del value.metadata_props[:]
    del model.graph.metadata_props[:]
    return model


def _quantised(model: Any) -> Any:
    """Matrix products in int8: weights once, inputs by their range in each call.

    Weights have 7 of the 8 bits: a processor with AVX2 and without VNNI adds two products of uint8 and int8 in 16 bits,
    which full weights overflow without a word (onnxruntime's guide to quantisation, "reduce_range").
    """
    import onnx
    from onnxruntime.quantization import QuantType, quantize_dynamic

    with tempfile.TemporaryDirectory() as folder, quiet("root"):
        path = Path(folder) / "int8.onnx"
        quantize_dynamic(
            model, path, op_types_to_quantize=list(QUANTISED), weight_type=QuantType.QInt8, per_channel=True,
            reduce_range=True,
        )  # fmt: skip
        return onnx.load(path)


class DecisionModule(nn.Module):
    """``decide`` of a policy, as the module that exporters want."""

    def __init__(self, policy: TorchPolicy) -> None:
        super().__init__()
        self.policy = policy

    def forward(self, observation: dict[str, Tensor], noise: Tensor) -> Tensor:
        """Features (N, [To,] …) as observed and standard normal noise (N, …) → actions (N, …)."""
        return self.policy.decide(observation, noise)


def decision_graph(policy: TorchPolicy) -> torch.export.ExportedProgram:
    """The graph of ``policy.decide``, on the policy's device, its number of worlds left open."""
    example = example_inputs(policy, TRACED)
    worlds = torch.export.Dim("worlds", min=1)
    shapes = {"observation": {key: {0: worlds} for key in example[0]}, "noise": {0: worlds}}
    with torch.no_grad(), quiet("torch.export"):
        return torch.export.export(DecisionModule(policy).eval(), example, dynamic_shapes=shapes, strict=False)


def example_inputs(policy: TorchPolicy, worlds: int, seed: int = 0) -> tuple[dict[str, Tensor], Tensor]:
    """Features and noise as `policy` may meet them, on its device: vectors spread as its statistics say, random
    pictures."""
    random = torch.Generator().manual_seed(seed)
    observation: dict[str, Tensor] = {}
    for key, spec in sorted(policy.interface.observation.items()):
        steps = policy.observed_steps.get(key, 1)
        shape = (worlds, *((steps,) if steps > 1 else ()), *spec.shape)
        if is_image(spec):
            observation[key] = torch.randint(256, shape, generator=random, dtype=torch.uint8).to(policy.device)
        else:
            value = torch.randn(shape, generator=random).to(policy.device)
            observation[key] = policy.normalizer.vector_back(key, value)
    return observation, torch.randn(worlds, *policy.noise.shape, generator=random).to(policy.device)


@contextmanager
def quiet(*names: str) -> Iterator[None]:
    """Within, these loggers say nothing below an error: exporters warn of libraries that are not needed."""
    loggers = [logging.getLogger(name) for name in names]
    before = [logger.level for logger in loggers]
    try:
        for logger in loggers:
            logger.setLevel(logging.ERROR)
        yield
    finally:
        for logger, level in zip(loggers, before, strict=True):
            logger.setLevel(level)
