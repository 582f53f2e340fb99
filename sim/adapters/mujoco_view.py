"""robosuite 1.5.2 on MuJoCo 4: two of its modules get an adapted view of `mujoco`.

MuJoCo 4 took two things away that robosuite uses:

- joint types in a model no longer compare as plain integers with members of ``mjtJoint``
  (``robosuite/utils/binding_utils.py``);
- ``mj_fullM(model, dst, data.qM)`` became ``mj_fullM(model, data, dst)``, and ``MjData.qM`` is gone
  (``robosuite/controllers/parts/controller.py``).

`mujoco` itself is left alone, so the embedded world in the same process is not touched.
"""

from __future__ import annotations

import types
from typing import Any

import mujoco as _mujoco

mujoco: Any = _mujoco  # the package brings no types for what is used here


class MujocoView(types.ModuleType):
    """`mujoco` with integer joint types and the `mj_fullM` of MuJoCo 3; everything else as it is."""

    def __init__(self) -> None:
        super().__init__("mujoco")
        kinds = {name: int(member) for name, member in mujoco.mjtJoint.__members__.items()}
        self.mjtJoint = types.SimpleNamespace(**kinds)

    def __getattr__(self, name: str) -> Any:
        return getattr(mujoco, name)

    @staticmethod
    def mj_fullM(model: Any, dst: Any, mass: Any) -> None:  # MuJoCo's name
        """The dense inertia matrix (nv, nv); `mass` is what the adapted ``MjData.qM`` returns."""
        mujoco.mj_fullM(model, mass, dst)


def adapt_robosuite() -> None:
    """Give robosuite's two modules the view. Does nothing on a MuJoCo that robosuite was written for."""
    if hasattr(mujoco.MjData, "qM"):
        return
    from robosuite.controllers.parts import controller
    from robosuite.utils import binding_utils

    if isinstance(binding_utils.mujoco, MujocoView):
        return
    view = MujocoView()
    binding_utils.mujoco = view
    controller.mujoco = view
    # The old second argument of mj_fullM was the packed matrix, the new one is the whole MjData: hand that through.
    setattr(binding_utils.MjData, "qM", property(lambda self: self._data))  # noqa: B010 - robosuite does not declare it
