"""Mutation check of what people see: one line of the pages to look at, of clips or of films is wrong, a test fails."""

from __future__ import annotations

import sys

from mutation import Mutant, kill_replacements

VIEW, SEEN = ("tests/hardware/teleop/test_view.py",), ("tests/hardware/teleop/test_view_chromium.py",)
FILM_NODE, VIDEO = "hardware/ros2/film_node.py", "tests/cli/test_deploy_video.py"
CAPTIONS = tuple(f"{VIDEO}::test_{name}" for name in (
    "a_caption_is_the_time_and_then_the_outcome", "a_real_station_is_filmed_through_its_cameras"))  # fmt: skip
ENGINE = "robolearn/rollout/engine.py"
WATCHED, FILMED = ("tests/cli/test_cli_view.py",), ("tests/sim/test_film.py",)
LET_IN = ("tests/hardware/teleop/test_browser_access.py",)
SOCKETS = "tests/hardware/teleop/test_browser_websockets.py"
DEEP = (f"{SOCKETS}::test_a_message_nested_too_deeply_is_said_once_and_ends_nothing",)
BROWSER, DEVICE = "hardware/teleop/browser", "hardware/teleop/wrapped.py"
CLIPS, PLAYER, FILM = "robolearn/rollout/watched_env.py", "robolearn/cli/view.py", "sim/embedded/camera.py"
STORED = "        self.status = status\n"

MUTANTS: dict[str, Mutant] = {
    "draws-in-the-loop": Mutant(f"{BROWSER}/viewer.py", STORED, "        self.page.update(status)\n", VIEW),
    "draws-for-nobody": Mutant(f"{BROWSER}/viewer.py", "and page.watched:", ":", VIEW),
    "keeps-the-first": Mutant(f"{BROWSER}/viewer.py", STORED, "        self.status = self.status or status\n", SEEN),
    "hides-from-the-device": Mutant(DEVICE, "        self._device.show(status)\n", "", VIEW),
    "outlives-the-device": Mutant(DEVICE, "            self._viewer.close()\n", "            pass\n", VIEW),
    "invitation-for-ever": Mutant(f"{BROWSER}/access.py", "del self._invitations[invitation]", "pass", VIEW),
    "invitation-never-late": Mutant(f"{BROWSER}/access.py", "return self._clock() <= end", "return True", VIEW),
    "invitation-for-anybody": Mutant(f"{BROWSER}/access.py", " and same_user(request.transport)", "", VIEW),
    "cookie-under-any-name": Mutant(f"{BROWSER}/access.py", "name = host if self._tls else", "name =", LET_IN),
    "window-with-the-token": Mutant(f"{BROWSER}/guarded_viser.py", "self.proxy.access.invite()", "self.proxy.access.token", VIEW),
    "window-without-a-display": Mutant(f"{BROWSER}/viewer.py", "not any(os.environ", "False and any(os.environ", VIEW),
    "markup-of-others": Mutant(f"{BROWSER}/page.py", "{escape(status.message)}", "{status.message}", VIEW),
    "deep-json-ends-the-page": Mutant(f"{BROWSER}/page.py", "    except RecursionError:\n", "    except ZeroDivisionError:\n", DEEP),
    "deep-json-is-silent": Mutant(f"{BROWSER}/page.py", "                    unread += 1\n", "", DEEP),
    "deep-json-ends-the-heartbeats": Mutant(f"{BROWSER}/page.py", "                    continue\n", "                    break\n", DEEP),
    "deep-json-is-an-unknown-key": Mutant(f"{BROWSER}/page.py", "client, why = None, str(error)", 'client, why = None, "unknown key"', DEEP),
    "no-end": Mutant(f"{BROWSER}/guarded_viser.py", "sockets = {**sockets, END:", "_ = {**sockets, END:", SEEN),
    "unsure-of-the-end": Mutant(f"{BROWSER}/session_end.html", "sure ||= code === GOING_AWAY;", "", SEEN),
    "not-connected-for-ever": Mutant(f"{BROWSER}/session_end.html", "performance.now() - lost > GONE_MS", "false", SEEN),
    "clip-of-another-world": Mutant(CLIPS, "self._env.scene(0)", "self._env.scene(1)", WATCHED),
    "clip-without-steps": Mutant(CLIPS, "if self.clip is None:\n            r", "if 1:\n            r", WATCHED),
    "clip-rewards-lost": Mutant(ENGINE, '"step_rewards": self.rewards', '"step_rewards": 0 * self.rewards', WATCHED),
    "clip-end-forgotten": Mutant(ENGINE, '["final_obs"] = self.final', '["final_obs"] = self.observation', WATCHED),
    "clip-in-haste": Mutant(PLAYER, "else 1.0 / self._hz)", "else 0.0)", WATCHED),
    "clip-wanted-by-nobody": Mutant(PLAYER, "self._next is None and self._page.watched", "self._next is None", WATCHED),
    "caption-of-the-last-episode": Mutant(FILM_NODE, 'self._clock(), ""\n', "self._clock(), self._ended\n", CAPTIONS),
    "caption-without-outcome": Mutant(FILM_NODE, "{self._ended or", "{'' or", CAPTIONS),
    "caption-every-end-a-success": Mutant(FILM_NODE, "ENDS[outcome].format", "ENDS[SUCCESS].format", CAPTIONS),
    "outcome-not-held": Mutant(FILM_NODE, "if self._episodes.outcome_shown and", "if False and", CAPTIONS),
    "film-without-captions": Mutant("robolearn/cli/film.py", "if seen.caption else picture", "if False else picture", CAPTIONS),
    "film-of-the-start": Mutant(FILM, "            if geom is None:", "            if True:", FILMED),
    "film-of-one-gripper": Mutant(FILM, "self._robot.fingers_of(widths)[0]", "self._robot.fingers_of(0 * widths + widths.flat[0])[0]", FILMED),
    "film-gripper-open": Mutant(FILM, "np.clip(openings, 0.0, self._most)", "self._most", FILMED),
}  # fmt: skip


if __name__ == "__main__":
    sys.exit(kill_replacements("view", MUTANTS))
