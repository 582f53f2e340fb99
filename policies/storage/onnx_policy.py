"""A policy that onnxruntime computes, from a file that `policies.storage.onnx_export` wrote."""

from __future__ import annotations

import importlib
import json
import os
from collections.abc import Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import NDArray

from policies.storage.config_file import check_config, interface_of
from robolearn.core import BadInput, Interface
from robolearn.core.installation import install_command

if TYPE_CHECKING:
    from policies.policy import TorchPolicy

SUFFIX = ".onnx"
NOISE = "noise"
CONFIG_KEY = "robolearn.policy"


class OnnxSession:
    """A `policies.policy.Backend`: features and noise → actions, by onnxruntime on the CPU.

    Args:
      model: the file's content, or the file.
      threads: as many as torch uses, unless one is given.

    Raises:
      BadInput: onnxruntime is not installed, or cannot run it.
    """

    def __init__(self, model: bytes | Path, threads: int | None = None) -> None:
        need_onnx("onnxruntime")
        import onnxruntime
        import torch

        options = onnxruntime.SessionOptions()
        options.intra_op_num_threads = threads or torch.get_num_threads()
        options.inter_op_num_threads = 1
        options.log_severity_level = 3
        options.add_session_config_entry("session.intra_op.allow_spinning", "0")  # cores are for others, too
        source = model if isinstance(model, bytes) else os.fspath(model)
        try:
            self._session: Any = onnxruntime.InferenceSession(source, options, providers=["CPUExecutionProvider"])
        except Exception as error:  # onnxruntime's own types, which are no subclasses of anything of its API
            said = str(error).splitlines()[0]
            name = "ONNX model" if isinstance(model, bytes) else f"policy {model}"
            raise BadInput(name, got=f"one that onnxruntime does not run ({said})", expected="ONNX") from error
        self._inputs = {value.name for value in self._session.get_inputs()}

    @property
    def metadata(self) -> Mapping[str, str]:
        """The metadata in the file."""
        return self._session.get_modelmeta().custom_metadata_map

    def __call__(self, observation: Mapping[str, NDArray], noise: NDArray) -> NDArray[np.float32]:
        feeds = {key: value for key, value in {**observation, NOISE: noise}.items() if key in self._inputs}
        return self._session.run(None, feeds)[0]


def is_onnx(name: str | os.PathLike[str]) -> bool:
    """True where `name` means an ONNX file."""
    return os.fspath(name).endswith(SUFFIX)


def load_onnx_policy(file: str | os.PathLike[str]) -> TorchPolicy:
    """The policy in an ONNX file: history, noise and checks are ours, its decisions onnxruntime's.

    Its own networks have no weights (they are on torch's device "meta"), so it cannot be trained further. Raises
    `BadInput`: no such file, not ONNX, or one that robolearn did not write.
    """
    from policies.registry import build_policy

    file = Path(file)
    session, config, interface = _open(file)
    policy = build_policy(config, interface, f"policy {file}", "meta").eval()
    policy.backend = session
    return policy


def onnx_interface(file: str | os.PathLike[str]) -> Interface:
    """The interface of the policy in an ONNX file; raises as `load_onnx_policy`."""
    return _open(Path(file))[2]


def _open(file: Path) -> tuple[OnnxSession, dict[str, Any], Interface]:
    if not file.is_file():
        raise BadInput(f"policy {file}", got="a folder" if file.exists() else "no such file", expected="an ONNX file")
    session = OnnxSession(file)
    text = session.metadata.get(CONFIG_KEY)
    if text is None:
        expected = "one of `robolearn export`"
        raise BadInput(f"policy {file}", got=f"an ONNX file without {CONFIG_KEY!r}", expected=expected)
    try:
        config = json.loads(text)
    except ValueError as error:
        raise BadInput(f"policy {file}", got=f"unreadable metadata ({error})", expected="JSON") from error
    check_config(config, file)
    return session, config, interface_of(config, file)


def need_onnx(*modules: str) -> None:
    """Raise `BadInput` for the first of the `modules` of the extra onnx that is not installed."""
    for name in modules:
        try:
            importlib.import_module(name)
        except ImportError:
            hint = install_command("onnx")
            raise BadInput("ONNX", got=f"no {name}", expected="it installed", hint=hint) from None
