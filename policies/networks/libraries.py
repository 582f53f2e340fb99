"""Backbones of timm and transformers from a folder that one of them has saved: ``config.json``, ``model.safetensors``.

What a backbone is built from is kept as JSON in the policy's own config.json (`EncoderConfig.architecture`), its
weights in the policy's own model.safetensors: a policy needs neither the folder nor a network. Nothing is ever
downloaded, no pickle is read, and no code that a folder brings along is run (``trust_remote_code``).

Both libraries import torchvision, of which no backbone needs a compiled operator. Its wheels on PyPI are built for
CUDA: beside a CPU build of torch their operators are not loaded, and torchvision cannot be imported at all, because it
describes two of them to torch's compiler. `import_vision` declares these two first; to call one is an error, as it
should be.
"""

from __future__ import annotations

import importlib
import inspect
import json
import logging
import sys
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import replace
from pathlib import Path
from typing import Any

import torch
from safetensors import SafetensorError
from safetensors.torch import load_file
from torch import Tensor, nn

from policies.networks.encoder_settings import EncoderConfig, Size, check_map
from robolearn.core import BadInput
from robolearn.core.errors import first_line
from robolearn.core.installation import install_command
from robolearn.io.json_files import parse_json

DESCRIBED = ("nms", "qnms")  # by torchvision, whether they are there or not
_DECLARED: list[Any] = []  # torch forgets what a library declared when it is collected
CONFIG, WEIGHTS = "config.json", "model.safetensors"
IMAGENET = ((0.485, 0.456, 0.406), (0.229, 0.224, 0.225))  # mean and standard deviation, where a folder names none
# Arguments with which timm would read, or download, what a config.json names.
TIMM_REFUSES = frozenset(
    {"pretrained", "pretrained_cfg", "pretrained_cfg_overlay", "checkpoint_path", "cache_dir", "features_only"}
)
# Settings with which transformers would run, or download, what a config.json names.
TRANSFORMERS_DROPS = frozenset(
    {"auto_map", "attn_implementation", "quantization_config", "dtype", "torch_dtype", "experts_implementation"}
)
NOT_BACKBONES = ("timm_wrapper", "timm_backbone")  # build what timm, or its hub, has under a name


def import_vision(name: str, what: str = "", hint: str = "") -> Any:
    """The library `name`, timm or transformers. Raises `BadInput` about `what`, by default ``--encoder``: it is not
    installed, or does not go with the installed torch."""
    what = what or f"--encoder {name}"
    level = logging.getLogger().level
    try:
        _torchvision()
        return importlib.import_module(name)
    except ImportError as error:
        raise BadInput(
            what, got=f"no {error.name or name}", expected="it", hint=hint or install_command("vision")
        ) from None
    except RuntimeError as error:
        first = str(error).splitlines()[0] if str(error) else type(error).__name__
        hint = "Its build of torchvision and that of torch do not go together"
        raise BadInput(what, got=first, expected="a library that can be imported", hint=hint) from error
    finally:
        logging.getLogger().setLevel(level)


def _torchvision() -> None:
    """Import torchvision if it is installed."""
    try:
        importlib.import_module("torchvision")
    except ModuleNotFoundError:
        return  # transformers does without, and timm says so itself
    except RuntimeError:
        if _DECLARED:
            raise
        for module in [key for key in sys.modules if key.split(".")[0] == "torchvision"]:
            del sys.modules[module]
        library = torch.library.Library("torchvision", "FRAGMENT")
        for operator in DESCRIBED:
            library.define(f"{operator}(Tensor dets, Tensor scores, float iou_threshold) -> Tensor")
        _DECLARED.append(library)
        importlib.import_module("torchvision")


class TimmMap(nn.Module):
    """A feature extractor of timm's → its last map (B, F, h, w)."""

    def __init__(self, model: Any) -> None:
        super().__init__()
        self.model = model

    def forward(self, image: Tensor) -> Tensor:
        """(B, 3, H, W) → (B, F, h, w)."""
        return self.model(image)[-1]


class TransformersMap(nn.Module):
    """A vision model of transformers' → its last map (B, F, h, w); tokens without a place, e.g. [CLS], are left out."""

    def __init__(self, model: Any) -> None:
        super().__init__()
        self.model = model
        parameters = inspect.signature(model.forward).parameters
        self._options = {"interpolate_pos_encoding": True} if "interpolate_pos_encoding" in parameters else {}

    def forward(self, image: Tensor) -> Tensor:
        """(B, 3, H, W) → (B, F, h, w), or (B, F) the mean of tokens that have no places."""
        hidden = self.model(pixel_values=image, **self._options).last_hidden_state
        if hidden.ndim == 4:
            return hidden
        patch = getattr(self.model.config, "patch_size", None)
        if isinstance(patch, int) and patch > 0:
            rows, columns = image.shape[-2] // patch, image.shape[-1] // patch
            if 0 < rows * columns <= hidden.shape[1]:
                places = hidden[:, hidden.shape[1] - rows * columns :]
                return places.transpose(1, 2).reshape(len(image), -1, rows, columns)
        return hidden.mean(1)


def read_folder(library: str, folder: Path) -> dict[str, Any]:
    """The architecture of the backbone in `folder`, as `build` takes it. Raises `BadInput`: no folder, no config.json
    of the library's, or no safetensors."""
    what = f"--encoder {library}:{folder}"
    if not folder.is_dir():
        got = "a file" if folder.exists() else "no such folder"
        raise BadInput(what, got=got, expected=f"a folder with {CONFIG} and {WEIGHTS}")
    config = _json(what, folder / CONFIG)
    check_weights(folder, what, sharded=library == "transformers")
    return _timm_architecture(what, config) if library == "timm" else _transformers_architecture(what, folder, config)


def check_weights(folder: Path, what: str, *, sharded: bool) -> None:
    """Raise `BadInput` unless `folder` has safetensors, in one file or, where `sharded`, in several with an index."""
    if not (folder / WEIGHTS).is_file() and not (sharded and (folder / f"{WEIGHTS}.index.json").is_file()):
        found = sorted(path.name for path in folder.iterdir() if path.suffix in (".bin", ".pt", ".pth", ".ckpt"))
        got = f"pickled weights ({found[0]})" if found else "no weights"
        raise BadInput(what, got=got, expected=WEIGHTS, hint="Pickles are not read" if found else "")


def build(library: str, architecture: Mapping[str, Any], what: str) -> nn.Module:
    """The backbone of an architecture, with random weights. Raises `BadInput`: the library is not installed, or it has
    no such architecture."""
    module = import_vision(library)
    try:
        if library == "timm":
            return TimmMap(_timm(module, what, architecture["name"], dict(architecture["args"])))
        return TransformersMap(_transformers(module, architecture["config"]))
    except BadInput:
        raise
    except Exception as error:  # whatever a library makes of settings that it does not like
        raise BadInput(what, got=first_line(error)[:200], expected=f"an architecture of {library}'s") from error


def resolved(config: EncoderConfig, sizes: set[Size]) -> EncoderConfig:
    """See `policies.networks.encoder_settings.EncoderKind.resolved`; `config` names a folder."""
    library, folder = config.of_kind.name, config.folder
    assert folder is not None
    architecture = read_folder(library, folder)
    backbone = build(library, architecture, f"--encoder {config.kind}").eval()
    channels = {_channels(backbone, config, size) for size in sizes}
    architecture["channels"] = channels.pop()
    return replace(config, kind=library, architecture=json.dumps(architecture, sort_keys=True))


def stored_architecture(config: EncoderConfig, what: str) -> dict[str, Any]:
    """The architecture, as `build` takes it, from a policy's config.json; raises `BadInput` unless it is whole."""
    try:
        found = json.loads(config.architecture)
        keys = {"centre", "scale", "channels"} | (
            {"config"} if config.kind.startswith("transformers") else {"name", "args"}
        )
        if not isinstance(found, dict) or not keys <= found.keys() or not 1 <= int(found["channels"]) <= 65_536:
            raise ValueError("incomplete")
    except (ValueError, TypeError) as error:
        raise BadInput(f"{what}: architecture", got=f"{str(error)[:80]}", expected="what training wrote") from None
    return found


def read_weights(library: str, folder: Path, backbone: nn.Module) -> None:
    """Put the weights in `folder` into the `backbone` that `build` made of its architecture. Raises `BadInput`: a
    weight is missing, or has another shape; or the file is damaged."""
    what = f"--encoder {library}:{folder}"
    try:
        if library == "timm":
            found = {_flat(key): value for key, value in load_file(folder / WEIGHTS).items()}
            state = {
                key: found.get(_flat(key.removeprefix("model.").removeprefix("model.")))
                for key in backbone.state_dict()
            }
            missing = [key for key, value in state.items() if value is None]
        else:
            model: Any = backbone.model
            with quiet():
                loaded, report = type(model).from_pretrained(
                    folder,
                    config=model.config,
                    local_files_only=True,
                    use_safetensors=True,
                    trust_remote_code=False,
                    dtype=torch.float32,
                    output_loading_info=True,
                )
            missing = sorted(report["missing_keys"])
            state = {f"model.{key}": value for key, value in loaded.state_dict().items()}
        if not missing:
            backbone.load_state_dict(state)
    except (SafetensorError, OSError, RuntimeError, ValueError) as error:
        raise BadInput(what, got=first_line(error)[:200], expected=f"weights of its {CONFIG}") from error
    if missing:
        raise BadInput(what, got=f"no tensor {missing[0]!r}", expected=f"weights of its {CONFIG}")


@torch.no_grad()
def _channels(backbone: nn.Module, config: EncoderConfig, size: tuple[int, int]) -> int:
    height, width = (config.resize, config.resize) if config.resize else size
    try:
        maps = backbone(torch.zeros(1, 3, height, width, device="cpu"))
    except Exception as error:  # a library's own, of any type
        got = f"pictures of {height} x {width}, of which it says: {(str(error).splitlines() or [''])[0][:160]}"
        raise BadInput(
            f"--encoder {config.kind}", got=got, expected="a size that it takes, by --encoder-size"
        ) from error
    if maps.ndim != 4 and config.pooling != "mean":
        raise BadInput("--pooling", got="spatial_softmax of a backbone without a map", available=["mean"])
    if maps.ndim == 4:
        check_map(min(maps.shape[-2:]), config, size)
    return int(maps.shape[1])


def _timm_architecture(what: str, config: dict[str, Any]) -> dict[str, Any]:
    timm = import_vision("timm")
    name, args = config.get("architecture"), config.get("model_args", {})
    if not isinstance(name, str):
        raise BadInput(f"{what}: {CONFIG}", got=f"no architecture ({', '.join(sorted(config)[:4])})", expected="timm's")
    args = dict(args) if isinstance(args, dict) else {}
    args.pop("num_classes", None)
    if "dynamic_img_size" not in args:
        try:  # of transformers: pictures of any size
            _timm(timm, what, name, args | {"dynamic_img_size": True})
            args["dynamic_img_size"] = True
        except TypeError:
            pass  # a convolutional network takes any size as it is
    data = config.get("pretrained_cfg")
    data = data if isinstance(data, dict) else {}
    return {"name": name, "args": args} | _scale(data.get("mean"), data.get("std"))


def _timm(timm: Any, what: str, name: Any, args: dict[str, Any]) -> Any:
    if not isinstance(name, str) or ":" in name or "/" in name or not timm.is_model(name):
        raise BadInput(what, got=f"architecture {name!r}", expected="one of timm's")
    if refused := sorted(TIMM_REFUSES & args.keys()):
        raise BadInput(what, got=f"model_args with {refused[0]!r}", expected="settings of the network alone")
    return timm.create_model(name, pretrained=False, features_only=True, out_indices=(-1,), **args)


def _transformers_architecture(what: str, folder: Path, config: dict[str, Any]) -> dict[str, Any]:
    vision = config.get("vision_config")
    if isinstance(vision, dict):  # of CLIP, SigLIP and their like: the vision half
        vision = {"model_type": f"{config.get('model_type')}_vision_model"} | vision
    else:
        vision = config
    known = import_vision("transformers").CONFIG_MAPPING
    kind = vision.get("model_type")
    if kind not in known or kind in NOT_BACKBONES:
        own = " that brings code of its own, which is not run" if "auto_map" in config else ""
        raise BadInput(f"{what}: {CONFIG}", got=f"model_type {kind!r}{own}", expected="one of transformers' own")
    file = folder / "preprocessor_config.json"
    data = _json(what, file) if file.is_file() else {}
    return {"config": _allowed(vision)} | _scale(data.get("image_mean"), data.get("image_std"))


def _transformers(transformers: Any, config: Mapping[str, Any]) -> Any:
    settings = _allowed(config)
    kind = settings.pop("model_type")
    if kind in NOT_BACKBONES:
        raise BadInput("encoder", got=f"model_type {kind!r}", expected="one of transformers' own")
    made = transformers.AutoConfig.for_model(kind, **settings)
    return transformers.AutoModel.from_config(made, dtype=torch.float32)


@contextmanager
def quiet() -> Iterator[None]:
    """transformers lists what it leaves out, e.g. the half of SigLIP that reads, and draws a bar: not within."""
    said = import_vision("transformers").utils.logging
    level, bar = said.get_verbosity(), said.is_progress_bar_enabled()
    said.set_verbosity_error()
    said.disable_progress_bar()
    try:
        yield
    finally:
        said.set_verbosity(level)
        if bar:
            said.enable_progress_bar()


def _allowed(config: Mapping[str, Any]) -> dict[str, Any]:
    return {k: v for k, v in config.items() if k not in TRANSFORMERS_DROPS and not k.startswith("_")}


def _scale(mean: Any, std: Any) -> dict[str, list[float]]:
    def three(values: Any, usual: tuple[float, ...]) -> list[float]:
        good = (
            isinstance(values, (list, tuple)) and len(values) == 3 and all(isinstance(v, (int, float)) for v in values)
        )
        return [float(v) for v in (values if good else usual)]

    return {"centre": three(mean, IMAGENET[0]), "scale": three(std, IMAGENET[1])}


def _json(what: str, file: Path) -> dict[str, Any]:
    try:
        found = parse_json(file)
    except FileNotFoundError:
        raise BadInput(what, got=f"no {file.name}", expected="a folder that the library has saved") from None
    except (ValueError, OSError) as error:
        raise BadInput(f"{what}: {file.name}", got=f"unreadable ({error})", expected="JSON") from error
    if not isinstance(found, dict):
        raise BadInput(f"{what}: {file.name}", got=type(found).__name__, expected="an object")
    return found


def _flat(key: str) -> str:
    """timm's feature extractors take sequences apart: ``stages.0`` is ``stages_0`` in them."""
    return key.replace(".", "_")
