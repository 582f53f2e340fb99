"""A machine that cannot draw says so in one line, before the work."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest

PROGRAM = [sys.executable, "-c", "import sys; from robolearn.cli.main import main; sys.exit(main())"]


@pytest.mark.long
@pytest.mark.parametrize(("back_end", "says"), [("glfw", "no OpenGL"), ("nonsense", "MUJOCO_GL: got nonsense")])
def test_no_gl_for_the_cameras(bc: Path, tmp_path: Path, back_end: str, says: str):
    environment = {key: value for key, value in os.environ.items() if key not in ("DISPLAY", "WAYLAND_DISPLAY")}
    environment |= {"MUJOCO_GL": back_end, "PYTHONPATH": os.pathsep.join(p for p in sys.path if p)}
    args = ["evaluate", "--policy", bc, "--episodes", 2, "--out", tmp_path / "out", "--json"]
    done = subprocess.run([*PROGRAM, *map(str, args)], capture_output=True, text=True, env=environment, timeout=120)
    assert done.returncode == 2, done.stderr
    assert done.stderr.startswith("robolearn: error: ") and done.stderr.count("\n") == 1 and says in done.stderr
    assert not done.stdout and not list(tmp_path.iterdir())


GL = ("libOpenGL.so.0", "libGL.so.1")


@pytest.mark.parametrize(("missing", "chosen"), [((), "egl"), (("libEGL.so.1",), None), (GL, None), (GL[:1], "egl")])
def test_egl_is_asked_for_where_it_can_draw(missing: tuple[str, ...], chosen: str | None) -> None:
    """On a bare Debian with libegl1 alone, `import mujoco` fails if asked for EGL: PyOpenGL finds no GL beside it."""
    hide = (
        "import ctypes, os\n"
        "class Hiding(ctypes.CDLL):\n"
        "    def __init__(self, name, *args, **more):\n"
        f"        if name in {missing!r}: raise OSError(name)\n"
        "        super().__init__(name, *args, **more)\n"
        "ctypes.CDLL = Hiding\n"
        "import robolearn\n"
        "print(os.environ.get('MUJOCO_GL'))\n"
    )
    environment = {key: value for key, value in os.environ.items() if key not in ("DISPLAY", "MUJOCO_GL")}
    environment |= {"PYTHONPATH": os.pathsep.join(p for p in sys.path if p)}
    done = subprocess.run([sys.executable, "-c", hide], capture_output=True, text=True, env=environment, timeout=60)
    assert done.stdout.split() == [str(chosen)], done.stderr
