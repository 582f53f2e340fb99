"""Pictures of N worlds, drawn from a block of memory into a block of memory, in this process or in others.

Mesa's software renderer shares what it allocates among all contexts of a process, so that one picture at a time is
drawn there. Processes draw side by side:

    worlds ──► canvas (shared memory): positions, episodes ──► process k: its share of the rows ──► canvas: pictures

A process is a plain child that is told rows over its standard input and answers over its standard output. It draws the
appearance of an episode by itself, from the episode's numbers alone, and ends when its input does: with its parent,
however that ends. The memory has no name, so that nothing is left of it either.
"""

from __future__ import annotations

import contextlib
import copy
import json
import mmap
import os
import select
import signal
import struct
import sys
import threading
from collections.abc import Iterator, Sequence
from dataclasses import asdict, dataclass
from typing import Any

import mujoco
import numpy as np
from numpy.typing import NDArray

from robolearn.core.errors import BadInput, RobolearnError
from sim.child import Child, own_paths, own_python
from sim.embedded.cousins import CousinRange
from sim.embedded.visual_randomisation import Appearance, VisualRandomisation, VisualRandomiser

COARSE = {"offsamples": 0, "numslices": 10, "numstacks": 6, "numquads": 2}  # of `mujoco.MjModel.vis.quality`
FINE = {"shadowsize": 1024, "numslices": 16, "numstacks": 10}  # MuJoCo's own map of shadows is sixteen times as large
_DISABLED = ("disable", "disabled", "off", "false", "0")  # values of MUJOCO_GL for no back end at all
# Mesa's llvmpipe shares what it allocates among all contexts of a process, without a lock that holds (22.3: eight
# threads that draw end in a segmentation fault within a minute). It draws each picture with all cores by itself.
_gl = threading.Lock()


class RenderContext:
    """One OpenGL context; draws in the thread that made it.

    What a picture of a world costs on a software renderer is its triangles and samples, not its pixels: of a policy's
    pictures nothing is seen of either, so they are drawn without multisampling, without shadows and from coarse shapes,
    at about six times the rate of MuJoCo's own settings. Most of a picture for people is the map of its shadows: with a
    smaller one, which cannot be told from the larger by looking, it takes a third of the time.

    Args:
      size: height, width [px].
      fine: for people: multisampling, shadows, round shapes.

    Raises:
      BadInput: there is no OpenGL.
    """

    def __init__(self, model: mujoco.MjModel, size: tuple[int, int], *, fine: bool) -> None:
        self._model = copy.copy(model)  # its colours, lights and cameras change from world to world
        self._appearance: Appearance | None = None
        self._renderer = _renderer(self._model, size, FINE if fine else COARSE)
        self._renderer.scene.flags[mujoco.mjtRndFlag.mjRND_SHADOW] = fine

    def place(self, data: mujoco.MjData, appearance: Appearance | None = None) -> None:
        """Compute where bodies, cameras and lights of `data` are, from its positions alone."""
        if appearance is not None and appearance is not self._appearance:
            appearance.apply_to(self._model)
            self._appearance = appearance
        mujoco.mj_kinematics(self._model, data)
        mujoco.mj_comPos(self._model, data)
        mujoco.mj_camlight(self._model, data)

    def draw(
        self, data: mujoco.MjData, camera: str | mujoco.MjvCamera, out: NDArray[np.uint8] | None = None
    ) -> NDArray[np.uint8]:
        """(H, W, 3) picture of the placed state `data`, into `out` if that is given."""
        self._renderer.update_scene(data, camera=camera)
        if self._appearance is not None:
            self._appearance.add_distractors(self._renderer.scene)
        with _gl:
            picture = self._renderer.render(out=out)
        if self._appearance is not None:
            self._appearance.expose_and_blur(picture)
        return picture

    def close(self) -> None:
        """Free the context, in the thread that made it."""
        with _gl:
            self._renderer.close()


def _renderer(model: mujoco.MjModel, size: tuple[int, int], quality: dict[str, int]) -> Any:
    # A buffer of the picture's size: what is not read costs a tenth of the time to clear.
    buffer = {"offheight": size[0], "offwidth": size[1]}
    with _gl, _set(model.vis.quality, quality), _set(model.vis.global_, buffer):
        try:
            if _windows_without_display():
                raise RuntimeError("windows need a display")
            return mujoco.Renderer(model, *size)
        except Exception as error:  # each GL back end raises its own types
            raise BadInput(
                "cameras",
                got=f"no OpenGL ({error})".splitlines()[0],
                expected="EGL, OSMesa or a display",
                hint="Install libegl1, libopengl0 and libgl1-mesa-dri (and set MUJOCO_GL=egl where mujoco is imported "
                "before robolearn), or leave the cameras out",
            ) from error


@contextlib.contextmanager
def _set(part: Any, values: dict[str, int]) -> Iterator[None]:
    """Attributes of `part` while a context is made of them."""
    usual = {name: getattr(part, name) for name in values}
    try:
        for name, value in values.items():
            setattr(part, name, value)
        yield
    finally:
        for name, value in usual.items():
            setattr(part, name, value)


def _windows_without_display() -> bool:
    """MuJoCo would open a GLFW window where there is no display: that does not raise but abort the process."""
    back_end = os.environ.get("MUJOCO_GL", "").lower().strip()
    display = os.environ.get("DISPLAY") or os.environ.get("WAYLAND_DISPLAY")
    return sys.platform == "linux" and not display and back_end not in ("egl", "osmesa", *_DISABLED)


Array = NDArray[np.float64]

_LENGTH = struct.Struct("<i")  # rows to be drawn; length of a complaint in bytes, 0 for none, negative for bad input
ORPHANED_S = 2.0  # so often a process looks whether its parent still lives, should another hold its input open


@dataclass(frozen=True)
class CanvasSpec:
    """The worlds and their pictures."""

    num_envs: int
    state: int  # numbers of a world that its picture depends on, nq + 7 nmocap
    cameras: tuple[str, ...]  # C names
    size: int  # edge of a picture [px]
    bodies: tuple[str, ...]
    randomisation: VisualRandomisation


class Canvas:
    """Arrays in one block of memory.

    Attributes:
      states: (N, nq + 7 nmocap) positions of joints, then positions and quaternions of mocap bodies.
      episodes: (N, 3) seed, start id and number of the running episode.
      pictures: (N, C, size, size, 3).
    """

    def __init__(self, spec: CanvasSpec, block: Any) -> None:
        n, s = spec.num_envs, spec.size
        self.states: Array = np.frombuffer(block, np.float64, n * spec.state).reshape(n, spec.state)
        at = self.states.nbytes
        self.episodes: NDArray[np.int64] = np.frombuffer(block, np.int64, 3 * n, at).reshape(n, 3)
        at += self.episodes.nbytes
        shape = (n, len(spec.cameras), s, s, 3)
        self.pictures: NDArray[np.uint8] = np.frombuffer(block, np.uint8, int(np.prod(shape)), at).reshape(shape)
        self.bytes = at + self.pictures.nbytes

    @staticmethod
    def bytes_of(spec: CanvasSpec) -> int:
        """Length of the block."""
        return spec.num_envs * (8 * spec.state + 24 + 3 * len(spec.cameras) * spec.size**2)


class Painter:
    """Draws in the thread that made it. Raises `BadInput`: there is no OpenGL."""

    def __init__(self, model: mujoco.MjModel, spec: CanvasSpec) -> None:
        self._spec, self._data = spec, mujoco.MjData(model)
        self._context = RenderContext(model, (spec.size, spec.size), fine=False)
        self._randomiser = VisualRandomiser(model, spec.randomisation, spec.num_envs, spec.bodies)
        self._nq, self._mocap = model.nq, model.nmocap

    def paint(self, canvas: Canvas, rows: Sequence[int]) -> None:
        """Draw the worlds `rows` from their states into their pictures."""
        nq, m, data = self._nq, self._mocap, self._data
        for w in rows:
            state = canvas.states[w]
            data.qpos[:] = state[:nq]
            data.mocap_pos[:] = state[nq : nq + 3 * m].reshape(m, 3)
            data.mocap_quat[:] = state[nq + 3 * m :].reshape(m, 4)
            self._context.place(data, self._randomiser.appearance(w, canvas.episodes[w]))
            for camera, out in zip(self._spec.cameras, canvas.pictures[w], strict=True):
                self._context.draw(data, camera, out)

    def close(self) -> None:
        """Free the GL context."""
        self._context.close()


class PainterProcesses:
    """The same in processes; the canvas is memory that they share. Raises `BadInput`: there is no OpenGL."""

    def __init__(self, model: mujoco.MjModel, spec: CanvasSpec, count: int) -> None:
        self._children: list[_Child] = []
        self._memory = os.memfd_create("pictures")
        size = mujoco.mj_sizeModel(model)
        canvas = Canvas.bytes_of(spec)
        os.ftruncate(self._memory, canvas + size)
        self.canvas = Canvas(spec, block := mmap.mmap(self._memory, canvas + size))
        mujoco.mj_saveModel(model, None, np.frombuffer(block, np.uint8, size, canvas))
        work = json.dumps({"memory": self._memory, "bytes": [canvas, size], "spec": asdict(spec)}).encode()
        try:
            cores = sorted(os.sched_getaffinity(0))
            self._children += [_Child(self._memory, work, cores[k % len(cores)]) for k in range(count)]
            for child in self._children:
                child.answer()
        except BaseException:
            self.close()
            raise

    @property
    def pids(self) -> list[int]:
        """Of the processes."""
        return [child.process.pid for child in self._children]

    def paint(self, rows: NDArray[np.int64]) -> None:
        """Draw the worlds `rows` (M,) of the canvas. Raises `RobolearnError`: a process is gone, or could not draw."""
        if not self._children:
            raise RobolearnError("these worlds cannot be drawn any more: their processes have ended")
        shares = np.array_split(np.asarray(rows, np.int64), len(self._children))
        busy = [(child, part) for child, part in zip(self._children, shares, strict=True) if len(part)]
        try:
            for child, part in busy:
                child.ask(part)
            for child, _ in busy:
                child.answer()
        except BaseException:
            self.close()
            raise

    def close(self) -> None:
        """End the processes."""
        for child in self._children:
            child.close()
        self._children.clear()
        if self._memory >= 0:
            os.close(self._memory)
            self._memory = -1


class _Child(Child):
    """The parent's end of one process."""

    def __init__(self, memory: int, work: bytes, core: int) -> None:
        environment = {**os.environ, "OMP_NUM_THREADS": "1", **own_paths()}
        super().__init__(own_python("sim.embedded.painter"), environment, pass_fds=(memory,))
        # What one process wakes together the kernel puts on one core, where it would draw one after the other.
        with contextlib.suppress(OSError):
            os.sched_setaffinity(self.process.pid, {core})
        self._send(_LENGTH.pack(len(work)) + work)

    def ask(self, rows: NDArray[np.int64]) -> None:
        """Have `rows` (M,) drawn."""
        self._send(_LENGTH.pack(len(rows)) + rows.tobytes())

    def answer(self) -> None:
        """Wait until what was asked for is done."""
        head = self.replies.read(_LENGTH.size)
        if len(head) < _LENGTH.size:
            raise RobolearnError(f"a process that draws pictures {self.ending()}")
        (length,) = _LENGTH.unpack(head)
        if length:
            text = self.replies.read(abs(length)).decode()
            raise BadInput(text) if length < 0 else RobolearnError(f"pictures could not be drawn: {text}")

    def _send(self, message: bytes) -> None:
        with contextlib.suppress(OSError):  # one that is gone is reported by `answer`
            self.requests.write(message)
            self.requests.flush()


def main() -> None:
    """The process that draws: make a painter of what the parent describes, then draw until it hangs up."""
    signal.signal(signal.SIGINT, signal.SIG_IGN)  # Ctrl-C reaches the whole group; the parent decides
    parent, requests, replies = os.getppid(), os.fdopen(os.dup(0), "rb", buffering=0), os.dup(1)
    os.dup2(2, 1)  # what a library prints must not mix with the replies
    painter: Painter | None = None
    canvas: Canvas | None = None
    while (content := _receive(requests, 1 if painter is None else 8, parent)) is not None:
        complaint, kind = b"", 1
        try:
            if painter is None:
                painter, canvas = _begin(json.loads(content))
            else:
                assert canvas is not None
                painter.paint(canvas, np.frombuffer(content, np.int64).tolist())
        except BadInput as error:
            complaint, kind = str(error).encode(), -1
        except Exception as error:
            complaint = f"{type(error).__name__}: {error}".encode()
        try:
            os.write(replies, _LENGTH.pack(kind * len(complaint)) + complaint)
        except BrokenPipeError:
            break
    os._exit(0)  # no clean-up of GL and interpreter: nobody waits for it


def _begin(work: dict[str, Any]) -> tuple[Painter, Canvas]:
    """The painter and the canvas that the parent describes."""
    start, size = work["bytes"]
    block = mmap.mmap(work["memory"], start + size)
    model = mujoco.MjModel.from_binary_path("world.mjb", {"world.mjb": block[start:]})
    lists: dict[str, Any] = {
        key: tuple(value) if isinstance(value, list) else value for key, value in work["spec"].items()
    }
    looks = lists["randomisation"]
    if looks["cousins"]:
        looks["cousins"] = CousinRange(**looks["cousins"])
    spec = CanvasSpec(**{**lists, "randomisation": VisualRandomisation(**looks)})
    return Painter(model, spec), Canvas(spec, block)


def _receive(requests: Any, item: int, parent: int) -> bytes | None:
    """The content of the next message, of items of so many bytes; None where the parent has hung up or is gone."""
    while not select.select([requests], [], [], ORPHANED_S)[0]:
        if os.getppid() != parent:
            return None
    head = _read(requests, _LENGTH.size)
    return None if head is None else _read(requests, item * _LENGTH.unpack(head)[0])


def _read(requests: Any, length: int) -> bytes | None:
    found = b""
    while len(found) < length:
        part = requests.read(length - len(found))
        if not part:
            return None
        found += part
    return found
