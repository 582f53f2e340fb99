"""Models that see, and their processors, from a folder that transformers has saved, or from the hub.

Of a repository only weights (safetensors), JSON, templates and vocabularies are fetched: no pickle is read, and no code
that a model brings along is run (``trust_remote_code``). A tensor that is missing is an error: transformers would draw
it at random and say so in a log.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path
from typing import Any

import torch
from safetensors import SafetensorError, safe_open
from torch import Tensor

from policies.networks.libraries import CONFIG, check_weights, import_vision, quiet
from robolearn.core import BadInput
from robolearn.core.errors import first_line
from robolearn.core.installation import install_command
from robolearn.io.hashes import sha256, sha256_file
from robolearn.io.json_files import read_json
from robolearn.io.paths import no_such_folder

FETCHED = ("*.json", "*.jinja", "*.txt", "*.model", "*.safetensors")
_REPOSITORY = re.compile(r"[\w.-]+/[\w.-]+(@[\w./-]+)?")
_ERRORS = (OSError, ValueError, RuntimeError, KeyError, TypeError, AttributeError, ImportError, SafetensorError)


def library(what: str) -> Any:
    """transformers. Raises `BadInput`: it is not installed, or cannot be imported."""
    return import_vision("transformers", what, install_command("vla"))


def model_folder(text: str, what: str) -> Path:
    """The folder `text`, or the snapshot of the repository ``owner/name@revision``, which is fetched if need be. Raises
    `BadInput`: there is neither."""
    folder = Path(text).expanduser()
    if folder.is_dir():
        return folder
    if folder.is_absolute() or not _REPOSITORY.fullmatch(text) or text.startswith("."):
        raise BadInput(f"{what} {text}", got=no_such_folder(folder), expected="a folder, or owner/name of the hub")
    from huggingface_hub import snapshot_download

    name, _, revision = text.partition("@")
    try:
        return Path(snapshot_download(name, revision=revision or None, allow_patterns=list(FETCHED)))
    except _ERRORS as error:  # the hub's own errors are of these
        got = f"neither a folder nor a repository that can be fetched ({first_line(error)[:160]})"
        raise BadInput(f"{what} {text}", got=got, expected="a folder, or owner/name of the hub") from None


def load_processor(
    folder: Path,
    what: str,
    *,
    kind: str = "AutoProcessor",
    parts: Sequence[str] = ("tokenizer", "image_processor", "chat_template"),
    **options: Any,
) -> Any:
    """The processor in `folder`, by default of a model that chats: tokenizer, pictures, template.

    Args:
      kind: its class in transformers.
      parts: what it has to have.
      options: for ``from_pretrained``.

    Raises:
      BadInput: there is none, or it lacks a part.
    """
    try:
        with quiet():
            processor = getattr(library(what), kind).from_pretrained(
                folder, local_files_only=True, trust_remote_code=False, **options
            )
    except _ERRORS as error:
        raise BadInput(f"{what} {folder}", got=first_line(error)[:200], expected="a processor of pictures") from None
    for part in parts:
        if getattr(processor, part, None) is None:
            raise BadInput(f"{what} {folder}", got=f"a processor without {part}", expected="one of a model that chats")
    return processor


def load_model(
    folder: Path,
    what: str,
    kinds: Mapping[str, str] | None,
    *,
    device: str,
    dtype: str,
    unused: Iterable[str] = (),
    **more: Any,
) -> Any:
    """The model in `folder`, ready to be read.

    Args:
      kinds: model_type of its config → name of the class in transformers; None: all that chat about pictures.
      unused: how names of tensors begin that the class has no place for.
      more: for ``from_pretrained``.

    Raises:
      BadInput: another model_type, no safetensors, a tensor that is missing, left over or of another shape.
    """
    tf, label = library(what), f"{what} {folder}"
    if kinds is None:
        from transformers.models.auto.modeling_auto import MODEL_FOR_IMAGE_TEXT_TO_TEXT_MAPPING_NAMES as KINDS

        kinds = KINDS
    check_weights(folder, label, sharded=True)
    given = more["config"].model_type if "config" in more else read_json(folder / CONFIG, what=label).get("model_type")
    kind = str(given)
    if kind not in kinds:
        hint = "Code that a model brings along is not run: convert it to the class of transformers"
        raise BadInput(f"{label}: model_type", got=kind, available=kinds, hint=hint)
    try:
        with quiet():
            model, report = getattr(tf, kinds[kind]).from_pretrained(
                folder, local_files_only=True, use_safetensors=True, trust_remote_code=False, dtype=dtype,
                output_loading_info=True, **more,
            )  # fmt: skip
    except _ERRORS as error:
        raise BadInput(label, got=first_line(error)[:200], expected=f"weights of a {kinds[kind]}") from None
    left = [key for key in report["unexpected_keys"] if not key.startswith(tuple(unused))]
    for got, keys in (("no tensor", report["missing_keys"]), ("a tensor that has no place,", left)):
        if keys:
            raise BadInput(label, got=f"{got} {min(keys)!r}", expected=f"the weights of a {kinds[kind]}")
    return model.to(device).eval().requires_grad_(False)


def read_tensors(folder: Path, prefixes: tuple[str, ...]) -> dict[str, Tensor]:
    """The tensors in the safetensors of `folder` whose names begin with one of `prefixes`."""
    found: dict[str, Tensor] = {}
    for path in sorted(folder.glob("*.safetensors")):
        with safe_open(path, "pt") as file:
            found |= {key: file.get_tensor(key) for key in file.keys() if key.startswith(prefixes)}  # noqa: SIM118
    return found


def content_hash(*folders: Path) -> str:
    """A hash of every file in `folders` that decides what a model answers."""
    files = sorted({path for folder in folders for pattern in FETCHED for path in folder.glob(pattern)})
    return sha256(*(part for path in files for part in (path.name, sha256_file(path))))


def float_type(model: Any) -> torch.dtype:
    """The type of a model's weights."""
    return next(model.parameters()).dtype
