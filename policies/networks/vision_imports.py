"""timm and transformers, imported when they are asked for, beside whatever torchvision there is.

Both import torchvision, of which no backbone needs a compiled operator. Its wheels on PyPI are built for CUDA: beside a
CPU build of torch their operators are not loaded, and then torchvision cannot be imported at all, because it describes
two of them to torch's compiler. Here these two are declared first, so that there is something to describe; to call one
is an error, as it should be.
"""

from __future__ import annotations

import importlib
import logging
import sys
from typing import Any

import torch

from robolearn.core import BadInput

INSTALL = "pip install 'robolearn[vision]'"
DESCRIBED = ("nms", "qnms")  # what torchvision describes without looking whether it is there
_DECLARED: list[Any] = []  # torch forgets what a library declared when it is collected


def import_vision(name: str) -> Any:
    """The library `name`, timm or transformers.

    Raises:
      BadInput: it is not installed, or does not go with the installed torch.
    """
    level = logging.getLogger().level
    try:
        _torchvision()
        return importlib.import_module(name)
    except ImportError as error:
        raise BadInput(f"--encoder {name}", got=f"no {error.name or name}", expected="it", hint=INSTALL) from None
    except RuntimeError as error:
        first = str(error).splitlines()[0] if str(error) else type(error).__name__
        hint = "Its build of torchvision and that of torch do not go together"
        raise BadInput(f"--encoder {name}", got=first, expected="a library that can be imported", hint=hint) from error
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
