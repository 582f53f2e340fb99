"""Mutation check of the pages: one line of scene, console or handing over is wrong, and a test fails.

Those whose judge is a browser take half a minute each.
"""

from __future__ import annotations

import sys

from mutation import Mutant, kill_replacements

MARKERS, LOGIC = ("tests/hardware/test_scene_markers.py",), ("tests/hil/console/test_console_logic.py",)
GEOMS, WORLD = ("tests/robots/test_geoms.py",), ("tests/sim/test_realtime.py",)
TAKING = ("tests/hardware/teleop/test_supervised.py",)
PAGE, CONSOLE = ("tests/hardware/teleop/test_browser_scene.py",), ("tests/hil/console/test_console_chromium.py",)
ROS, LATCHES, SUPERVISED = "hardware/ros2/scene.py", "robolearn/hil/console/logic.py", "hardware/teleop/supervised.py"
REMOTE, HUB = "robolearn/cli/hub/remote.py", ("tests/cli/test_hub.py",)
TAKE_OVER = "hardware/teleop/supervised.py"
GHOST = ("tests/hardware/teleop/test_ghost_chromium.py",)
PLAYER, BROWSER = "hardware/teleop/chunk_player.py", "hardware/teleop/browser"

MUTANTS: dict[str, Mutant] = {
    "hub-keeps-files-of-an-older-set": Mutant(REMOTE, "sorted(there - files.keys())", "()", HUB),
    "hub-forgets-the-version": Mutant(REMOTE, "            _tag(hub, repo)\n", "            pass\n", HUB),
    "hub-shows-the-token": Mutant(REMOTE, 'text.replace(get_token() or "\\0", "…")', "text", HUB),
    "hub-sends-the-token-anywhere": Mutant(REMOTE, 'address.scheme != "https" and', "False and", HUB),
    "hub-brings-pickles": Mutant("robolearn/cli/hub/remote.py", 'PULLED = ("*.json",', 'PULLED = ("*",', HUB),
    "hub-brings-what-is-damaged": Mutant(
        "robolearn/cli/hub/commands.py", "content = content_of(folder)", "content = content_of(folder) if 0 else Any", HUB
    ),
    "hub-counts-other-starts": Mutant("robolearn/cli/hub/commands.py", "seed=self.seed, json", "json", HUB),
    "material-forgotten": Mutant("robots/shapes.py", "if material >= 0 and", "if False and", GEOMS),
    "hidden-geoms-shown": Mutant("robots/shapes.py", "model.geom_group[geom] < _HIDDEN_GROUP", "True", GEOMS),
    "mocap-forgotten": Mutant(
        "sim/embedded/camera.py", "self._data.mocap_quat = qpos, mocap_pos,", "_ = qpos, mocap_pos,", WORLD
    ),
    "geom-frame-ignored": Mutant(
        "sim/embedded/camera.py", "(row[3:], self._data.geom_xmat[geom])", "(row[3:], self._data.xmat[1])", WORLD
    ),
    "half-size-markers": Mutant(ROS, "Vector3(x=2 * half[0], y", "Vector3(x=half[0], y", MARKERS),
    "caps-unturned": Mutant(ROS, "quat_to_matrix(pose[3:]) @ offset", "offset", MARKERS),
    "slow-motion-lost": Mutant(ROS, "_poses[moved] = scene.poses[moved]", "_poses = scene.poses.copy()", MARKERS),
    "nan-drawn": Mutant(ROS, "np.isfinite(pose).all() and", "True and", MARKERS),
    "scene-stale": Mutant(f"{BROWSER}/scene.py", "handle.position, handle.wxyz =", "_ =", PAGE),
    "scene-not-taken": Mutant("hardware/ros2/teleop_node.py", "                self._take_scene()\n", "", PAGE),
    "scene-once": Mutant(
        "hardware/ros2/sim_arm_node.py", "self._scene_due = now + SCENE_PERIOD_S", "self._scene_due = now + 1e9", PAGE
    ),
    "ghost-that-the-slider-leaves": Mutant(f"{BROWSER}/ghost.html", '$("mix").value / 100', "0.5", GHOST),
    "ghost-of-the-last-start": Mutant(f"{BROWSER}/ghost.html", 'image.removeAttribute("src");', "0;", GHOST),
    "ghost-with-red-for-blue": Mutant(f"{BROWSER}/ghost.py", "np.ascontiguousarray(picture[..., ::-1])", "np.ascontiguousarray(picture)", GHOST),
    "small-pictures": Mutant(f"{BROWSER}/page.py", "large=self._arbiter.enlarged", "large=False", PAGE),
    "stop-not-latched": Mutant(LATCHES, "if self._stop else tuple(asked)", "if False else tuple(asked)", LOGIC),
    "stop-released-in-haste": Mutant(LATCHES, " or self._clock() < self._stop_at + CALM_S", "", LOGIC),
    "stop-released-at-once": Mutant(LATCHES, "if self._clock() > self._sure_until:", "if False:", LOGIC),
    "two-labels": Mutant(LATCHES, "free = control is not InControl.NOBODY and label is None", "free = control is not InControl.NOBODY", LOGIC),
    "label-for-ever": Mutant(LATCHES, "self._label[1] != status.episode", "False", LOGIC),
    "free-for-ever": Mutant("robolearn/hil/console/logic.py", "if left > 0:", "if True:", LOGIC),
    "long-help": Mutant("robolearn/hil/console/logic.py", "status.in_control_s > self.long_s", "False", LOGIC),
    "markup-of-others": Mutant("robolearn/hil/console/page.py", "{escape(message)}", "{message}", CONSOLE),
    "shares-as-they-are": Mutant("robolearn/hil/console/page.py", "100.0 * y if", "1.0 * y if", CONSOLE),
    "wrong-button": Mutant(
        "robolearn/hil/console/page.py", "self._press(command)", "self._press(OperatorCommand.RETURN)", CONSOLE
    ),
    "stop-unheard": Mutant("robolearn/hil/console/page.py", "                stop()\n", "", CONSOLE),
    "no-interventions": Mutant(SUPERVISED, "intervention=True", "intervention=False", TAKING),
    "policy-goes-on-where-it-was": Mutant(
        SUPERVISED, "not meant\n            self._player.begin()", "not meant", TAKING
    ),
    "gripper-jumps": Mutant(TAKE_OVER, "action[self._grippers] = np.where(np.isnan(self._found), asked, self._grip)", "pass", TAKING),
    "silence-hands-back": Mutant(SUPERVISED, "self._lost = not meant", "self._lost = False", TAKING),
    "nobody-needed": Mutant(SUPERVISED, "age <= ALIVE_S and", "True and", TAKING),
    "intervention-not-stored": Mutant(
        "hardware/recording/recording.py", "intervention=row.intervention", "intervention=False", TAKING
    ),
    "chunk-from-its-start": Mutant(PLAYER, "accept(request.stamp,", "accept(self._now(),", TAKING),
    "chunk-of-another-turn": Mutant(PLAYER, "request.turn == self._turn and", "True and", TAKING),
    "chunk-comes-a-step-later": Mutant(PLAYER, "        return self.later()", "        return None", TAKING),
    "late-chunk-is-no-stop": Mutant(PLAYER, "self._stop(self.stream.reason)", "pass", TAKING),
    "refused-chunk-is-no-stop": Mutant(PLAYER, "self._stop(str(error))", "pass", TAKING),
    "stop-of-the-player-is-none": Mutant(SUPERVISED, "not self._lost and not stopped\n        note", "not self._lost\n        note", TAKING),
}  # fmt: skip


if __name__ == "__main__":
    sys.exit(kill_replacements("pages", MUTANTS))
