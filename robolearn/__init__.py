"""robolearn: from demonstrations to a robot policy that RL has made reliable."""

import ctypes.util
import os
import sys

__version__ = "0.1.0"

# MuJoCo chooses its GL back end when it is first imported. Without a display only EGL can draw, and asking for
# EGL where it is not installed would break the import itself.
if sys.platform == "linux" and not os.environ.get("DISPLAY") and ctypes.util.find_library("EGL"):
    os.environ.setdefault("MUJOCO_GL", "egl")

# Mesa's software renderer starts a thread for each core and picture. Our worlds are drawn side by side, a thread each,
# and two layers of threads on the same cores cost a third of the pictures.
os.environ.setdefault("LP_NUM_THREADS", "0")
