"""The bodies around the arm on a page: one mesh a shape, moved as the simulation says."""

from __future__ import annotations

import numpy as np
import viser
from numpy.typing import NDArray

from hardware.teleop.browser.meshes import draw_mesh, mesh_of
from robolearn.core.scene import Scene, Shape

ROOT = "/scene"
_MOVED = 1e-5  # of a pose [m, 1]: less is not worth a message


class SceneView:
    """Draws a scene under `ROOT` and moves it; draws it anew where other shapes come.

    Args:
      server: the page.
    """

    def __init__(self, server: viser.ViserServer) -> None:
        self._server = server
        self._shapes: tuple[Shape, ...] = ()
        self._nodes: list[viser.MeshHandle] = []
        self._drawn: NDArray[np.float64] = np.zeros((0, 7))

    def show(self, scene: Scene) -> None:
        """Show it as it is now."""
        with self._server.atomic():
            if not self._same(scene):
                self._draw(scene)
            for i in np.flatnonzero((np.abs(scene.poses - self._drawn) > _MOVED).any(axis=1)):
                self._nodes[i].position, self._nodes[i].wxyz = scene.poses[i, :3], scene.poses[i, 3:]
                self._drawn[i] = scene.poses[i]

    def _same(self, scene: Scene) -> bool:
        return len(self._shapes) == len(scene.shapes) and all(
            a is b or a.same(b) for a, b in zip(self._shapes, scene.shapes, strict=True)
        )

    def _draw(self, scene: Scene) -> None:
        for node in self._nodes:
            node.remove()
        self._shapes, self._drawn = scene.shapes, np.full_like(scene.poses, np.inf)
        self._nodes = [draw_mesh(self._server, f"{ROOT}/{s.name}", mesh_of(s), s.rgba) for s in scene.shapes]
