"""robolearn: from demonstrations to a robot policy that RL has made reliable."""

import ctypes
import os
import sys
from importlib import import_module
from typing import Any

__version__ = "0.1.0"


def _loads(library: str) -> bool:
    try:
        return bool(ctypes.CDLL(library))
    except OSError:
        return False


# MuJoCo chooses its GL back end when it is first imported. Without a display only EGL can draw, and asking for EGL
# where it is not installed, or neither of the libraries of GL itself, would break the import itself.
if sys.platform == "linux" and not os.environ.get("DISPLAY") and _loads("libEGL.so.1"):
    if _loads("libOpenGL.so.0") or _loads("libGL.so.1"):
        os.environ.setdefault("MUJOCO_GL", "egl")

# Mesa's software renderer starts a thread for each core and picture. Our worlds are drawn side by side, a thread each,
# and two layers of threads on the same cores cost a third of the pictures.
os.environ.setdefault("LP_NUM_THREADS", "0")

# The names of README's Python section, from the rooms where they live. Looked up when they are asked for: whoever wants
# `robolearn.Dataset` waits for no simulator, and the rooms stay apart.
_NAMES = {
    "ArraySpec": "robolearn.core",
    "BadInput": "robolearn.core",
    "Dataset": "robolearn.data",
    "EpisodeWriter": "robolearn.data",
    "Interface": "robolearn.core",
    "compare": "robolearn.eval",
    "evaluate": "robolearn.eval",
    "make_env": "sim.registry",
    "make_expert": "sim.experts",
    "open_policy": "policies.storage.loading",
}
__all__ = ["__version__", *_NAMES]


def __getattr__(name: str) -> Any:
    if name not in _NAMES:
        raise AttributeError(f"module 'robolearn' has no {name!r}; it has {', '.join(_NAMES)}")
    return getattr(import_module(_NAMES[name]), name)


def __dir__() -> list[str]:
    return sorted({*globals(), *_NAMES})
