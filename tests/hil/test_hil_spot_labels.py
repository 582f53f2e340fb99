"""A person's spot labels on an arm: who is asked when, what the answers part, and what waits for them."""

from __future__ import annotations

import sys
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from hardware.recording.episodes import Phase
from hardware.teleop.device import EpisodeEvent as E
from robolearn.cli.hil.commands import HilRun
from robolearn.core import BadInput
from robolearn.hil.console.logic import Latches
from robolearn.hil.operator_console import HilStatus, InControl, OperatorCommand
from robolearn.hil.spot_labels import QUESTION, SpotLabels
from robolearn.rewards.online import OnlineDone
from robolearn.rl.audit import AuditConfig, Verdicts

sys.path.insert(0, str(Path(__file__).parent))
from test_hil_station import Rig, TwelveFrames

STRICT = AuditConfig(audit_precision=1.0)  # any that was called done and failed parts


def test_four_failures_that_were_called_done_part_as_in_simulation(tmp_path: Path) -> None:
    """n of n: at least 0.005^(1/n) at 99%: 17% of 3, 27% of 4; a fifth is the most."""
    labels = SpotLabels(tmp_path / "a.labels.json", 1.0, 0)
    said = []
    for _ in range(4):
        assert labels.ended(True, None) == "" and labels.open
        said.append(labels.answer(False))
        assert not labels.open
    assert said[:3] == [""] * 3
    assert said[3].startswith("the reward model calls 100% of the last 4 failed episodes done (at least 27%)")
    assert said[3] == Verdicts(0, 4, 0, 4).parted(AuditConfig())


def test_the_newest_labels_count(tmp_path: Path) -> None:
    labels = SpotLabels(tmp_path / "a.labels.json", 1.0, 0, AuditConfig(audit_window=3))
    for called, solved in ((True, False), (True, True), (False, True), (False, False)):
        labels.ended(called, solved)
    assert labels.verdicts == Verdicts(1, 0, 1, 3), "the key that ends an episode is the answer; the first is old"


def asked(labels: SpotLabels, episodes: int) -> list[bool]:
    """True for each of so many episodes at whose end the person is asked, and says that it succeeded."""
    found = []
    for _ in range(episodes):
        labels.ended(True, None)
        found.append(labels.open)
        if labels.open:
            labels.answer(True)
    return found


def test_a_share_is_drawn_and_labels_count_on(tmp_path: Path) -> None:
    path = tmp_path / "a.labels.json"
    first = SpotLabels(path, 0.25, 7)
    drawn = asked(first, 400)
    assert drawn == asked(SpotLabels(path, 0.25, 7), 400) and 0.18 < np.mean(drawn) < 0.32
    first.save()
    again = SpotLabels(path, 0.25, 7)
    assert again.verdicts == first.verdicts == Verdicts(100, 0, 0, 100)
    assert asked(again, 50) != drawn[:50], "other episodes than the first time"
    path.write_text('{"labels": [1]}')
    with pytest.raises(BadInput, match="other labels, expected pairs"):
        SpotLabels(path, 0.25, 7)


def audited(folder: Path, share: float = 1.0) -> Any:
    """A rig whose model ends each episode, and its labels."""
    labels = SpotLabels(folder / "arm.labels.json", share, 0, STRICT)
    return Rig(folder, OnlineDone([TwelveFrames()], 20, 20, frames=3, waits=True), labels), labels


def test_the_next_episode_waits_for_the_answer_and_the_run_ends_where_they_part(tmp_path: Path) -> None:
    rig, labels = audited(tmp_path)
    rig.record()
    rig.until(lambda: rig.phase is Phase.READY, 5.0)
    rig.settled()
    for _ in range(3):
        rig.press(E.START)
        rig.run(0.3)
        assert rig.phase is Phase.READY and labels.open and rig.logic.status.message == QUESTION
    assert rig.page.shown[-1].question == QUESTION and rig.page.shown[-1].operator is None
    rig.press(E.SUCCESS)
    rig.run(0.2)
    assert not labels.open and rig.page.shown[-1].question == "" and "press Start" in rig.logic.status.message
    rig.record()
    rig.until(lambda: rig.phase is Phase.READY, 5.0)
    rig.settled()
    rig.page.asks.append("failure")
    rig.until(lambda: rig.logic.done, 2.0)
    assert str(rig.logic.error) == (
        "of the last 2 episodes that the reward model calls done 50% are solved (at most 100%): the policy pleases the "
        "model and not the task; the run ends here"
    )
    rig.run(0.2)
    assert SpotLabels(tmp_path / "arm.labels.json", 1.0, 0).verdicts == Verdicts(1, 1, 0, 2)
    assert [end.success for _, end in rig.episodes()] == [True, True], "what is said is not learned from"


def test_the_key_that_ends_an_episode_is_the_answer_and_no_other_is_asked_about(tmp_path: Path) -> None:
    rig, labels = audited(tmp_path)
    rig.record()
    rig.steps(5)
    rig.press(E.FAILURE)
    rig.until(lambda: rig.phase is Phase.READY, 5.0)
    rig.settled()
    assert not labels.open and labels.verdicts == Verdicts(0, 0, 0, 1)
    (tmp_path / "none").mkdir()
    rig, labels = audited(tmp_path / "none", share=0.0)
    rig.record()
    rig.until(lambda: rig.phase is Phase.READY, 5.0)
    rig.record()
    assert rig.phase is Phase.RECORDING and labels.verdicts == Verdicts()


def test_the_page_has_the_keys_where_a_label_is_asked_for() -> None:
    page = Latches()
    for wanted in (False, True):
        page.update(HilStatus(InControl.NOBODY, 3, 0.0, 0.0, asks_label=wanted))
        assert not page.press(OperatorCommand.RETURN) and not page.press(OperatorCommand.TAKE_OVER)
        assert page.press(OperatorCommand.FAILURE) is wanted
    assert not page.press(OperatorCommand.SUCCESS), "one label an episode"


def test_shares_that_ask_nobody_are_refused(tmp_path: Path) -> None:
    at: dict[str, Any] = {"policy": tmp_path, "out": tmp_path}
    arm = {"robot": "sim", "teleop": "keyboard"}
    for wrong, said in (
        ({"audit_share": 1.5, **arm}, "--audit-share: got 1.5, expected a share from 0 to 1"),
        ({"audit_share": 0.2}, "--audit-share: got no --robot"),
        ({"audit_share": 0.2, "reset": "policy", "reset_policy": "p", **arm}, "--audit-share: got --reset policy"),
    ):
        with pytest.raises(BadInput) as bad:
            HilRun(**at, **wrong).check_world()
        assert str(bad.value).startswith(said)
    with pytest.raises(BadInput, match=r"--audit-share: got 0\.2 with --reward task, expected a reward model"):
        HilRun(**at, audit_share=0.2, **arm).run()
