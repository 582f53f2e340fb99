"""The end of an episode by time or by a reward model, and the policy node that disarms and ends, without ROS nodes."""

from __future__ import annotations

import time
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest

from hardware.execution.episode_end import EpisodeEnd
from hardware.execution.policy_stop import PolicyStop
from hardware.node_parameters import PolicyParameters
from robolearn.core import ArraySpec, BadInput, Interface
from robolearn.deploy import nodes

ACTION = np.zeros(3)


def frame(value: float) -> dict[str, np.ndarray]:
    return {"proprio": np.full((1, 2), value)}


class Verdicts:
    """A judge whose verdict is the newest frame's value."""

    def __init__(self) -> None:
        self.solved, self.calls = False, list[tuple[Any, ...]]()
        self.settled, self.fault = True, ""

    def begin(self, task: str, observation: Any) -> None:
        self.solved = False
        self.calls.append(("begin", task, observation["proprio"].tolist()))

    def add(self, action: np.ndarray, observation: Any) -> None:
        self.solved = bool(observation["proprio"][0])
        self.calls.append(("add", action[0], observation["proprio"].tolist()))

    def close(self) -> None:
        self.calls.append(("close",))


def test_the_clock_begins_with_each_arming() -> None:
    end = EpisodeEnd(10.0)
    assert end.outcome(1e9) == "", "not armed"
    end.arm(True, 5.0)
    assert end.outcome(14.9) == "" and end.outcome(15.0) == "timeout"
    end.arm(False, 14.0)
    assert end.outcome(100.0) == ""
    end.arm(True, 100.0)
    assert end.outcome(109.0) == ""


def test_without_a_limit_no_clock_ends_an_episode() -> None:
    end = EpisodeEnd(0.0)
    end.arm(True, 0.0)
    assert not end.is_asked_for and end.outcome(1e9) == ""
    for wrong in (-1.0, float("nan")):
        with pytest.raises(BadInput, match="seconds"):
            EpisodeEnd(wrong)


def test_a_reward_model_ends_an_episode_as_solved_and_sees_what_the_policy_sees() -> None:
    judge = Verdicts()
    end = EpisodeEnd(10.0, judge, "lift it")
    end.arm(True, 0.0)
    for value in (0.0, 0.0, 1.0):
        assert end.outcome(1.0) == ""
        end.add(frame(value), ACTION + value)
    assert end.outcome(1.0) == "success"
    assert judge.calls == [("begin", "lift it", [0.0, 0.0]), ("add", 0.0, [0.0, 0.0]), ("add", 0.0, [1.0, 1.0])]
    end.arm(True, 20.0)
    assert end.outcome(21.0) == "", "the verdict is of the episode before"
    end.add(frame(1.0), ACTION)
    assert end.outcome(21.0) == "" and end.outcome(30.0) == "timeout"
    end.close()
    assert judge.calls[-1] == ("close",)


def test_a_reward_model_that_ends_no_episode_has_a_verdict_on_each_with_its_last_frame() -> None:
    judge = Verdicts()
    end = EpisodeEnd(0.0, judge, "lift it", judge_ends=False)
    assert end.is_judged and not end.is_asked_for and not EpisodeEnd(0.0, judge).is_judged
    assert end.verdict()["fault"] == "the policy decided nothing"
    end.arm(True, 0.0)
    end.add_last(frame(1.0))
    assert not judge.calls, "nothing was decided: there is no episode to judge"
    end.add(frame(0.0), ACTION + 5.0)
    end.add_last(frame(1.0))
    assert judge.calls[-1] == ("add", 5.0, [1.0, 1.0]) and end.outcome(1e9) == ""
    end.arm(False, 2.0)
    assert end.verdict() == {"done": True, "settled": True, "fault": ""}, "it outlives the episode"
    judge.settled, judge.fault = False, "no GPU"
    assert end.verdict() == {"done": True, "settled": False, "fault": "no GPU"}
    end.arm(True, 3.0)
    assert not end.verdict()["done"], "and not the next arming"


class Disarming:
    """The parts of a policy node that end an episode."""

    def __init__(self, seconds: float, judge: Verdicts | None = None) -> None:
        self._end = self.end = EpisodeEnd(seconds, judge, judge_ends=False)
        self._outcome, self._ended_at, self._arming, self.done = "", np.inf, "", False
        self._stop = PolicyStop()
        self._episode, self._told = "", False
        self.error: Exception | None = None
        self.asked: list[Any] = []
        self.reported: list[str] = []
        self._disarm = SimpleNamespace(call_async=self.asked.append) if self._end.is_asked_for else None
        self.predictor = SimpleNamespace(begin=lambda turn, after: None)
        self.observer = SimpleNamespace(stamps=lambda: (0.0, 0.0))

    def _report(self) -> None:
        self.reported.append(self._outcome)

    def leave(self) -> None:
        from hardware.ros2.policy_node import PolicyNode

        PolicyNode.leave(self)  # type: ignore[arg-type]


def safety_report(monkeypatch: pytest.MonkeyPatch, node: Disarming, arming: str, now: float) -> None:
    from hardware.ros2 import policy_node

    monkeypatch.setattr(policy_node.messages, "read_safety_report", lambda _: SimpleNamespace(arming=arming))
    monkeypatch.setattr(policy_node.time, "monotonic", lambda: now)
    policy_node.PolicyNode._on_safety(node, None, None)  # type: ignore[arg-type]


def test_the_policy_node_has_the_arm_disarmed_and_ends_when_it_is(monkeypatch: pytest.MonkeyPatch) -> None:
    from hardware.ros2.policy_node import DISARM_S, PolicyNode

    for heard in (True, False):
        node: Any = Disarming(10.0)
        safety_report(monkeypatch, node, "1", 100.0)
        PolicyNode.look_for_end(node, 109.9)
        assert not node.asked and not node.done
        PolicyNode.look_for_end(node, 110.1)
        PolicyNode.look_for_end(node, 110.2)
        assert len(node.asked) == 1 and not node.done, "it goes on until the arm is at rest"
        assert node.reported == ["timeout"], "a recorder learns it at once"
        if heard:
            safety_report(monkeypatch, node, "", 110.3)
        else:
            PolicyNode.look_for_end(node, 110.2 + DISARM_S)
        assert node.done and node.reported == ["timeout"] * 2, "when it ended, and when it was at rest"


def test_the_operator_s_verdict_ends_the_episode_that_runs_and_the_first_one_counts() -> None:
    end = EpisodeEnd(10.0, by_key=True)
    assert end.is_asked_for and EpisodeEnd(0.0, by_key=True).is_asked_for
    assert end.judged(True) == "no episode runs: the arm is not armed"
    end.arm(True, 0.0)
    assert end.outcome(1.0) == "", "what came before it was armed is of no episode"
    assert end.judged(False) == "" and end.outcome(1.0) == "failure"
    assert end.judged(True) == "the episode has ended already: failure"
    assert end.outcome(11.0) == "failure", "by then its time is over, too"
    end.arm(False, 2.0)
    end.arm(True, 3.0)
    assert end.outcome(4.0) == "" and end.judged(True) == "" and end.outcome(4.0) == "success"


def test_a_verdict_reaches_the_policy_node_s_exit_code_and_not_an_episode_that_is_over(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    from hardware.ros2.policy_node import PolicyNode

    for success, said in ((True, ""), (False, "the episode is a failure, as the operator says")):
        node: Any = Disarming(10.0)
        safety_report(monkeypatch, node, "1", 100.0)
        answer = PolicyNode.judge(node, success, None, SimpleNamespace())  # type: ignore[arg-type]
        assert (answer.success, answer.message) == (True, "success" if success else "failure")
        assert not node.asked and not node.done, "the arm is armed, and the policy goes on"
        PolicyNode.look_for_end(node, 101.0)
        assert len(node.asked) == 1 and not node.done
        answer = PolicyNode.judge(node, not success, None, SimpleNamespace())  # type: ignore[arg-type]
        assert (answer.success, answer.message[:29]) == (False, "the episode has ended already")
        safety_report(monkeypatch, node, "", 101.5)
        assert (
            node.done and str(node.error or "") == said and node.reported == ["success" if success else "failure"] * 2
        )
    node = Disarming(10.0)
    safety_report(monkeypatch, node, "1", 100.0)
    PolicyNode.look_for_end(node, 110.1)
    answer = PolicyNode.judge(node, True, None, SimpleNamespace())  # type: ignore[arg-type]
    assert (answer.success, answer.message) == (False, "the episode has ended already: timeout")


def test_an_arm_that_a_person_disarms_ends_nothing(monkeypatch: pytest.MonkeyPatch) -> None:
    from hardware.ros2.policy_node import PolicyNode

    for seconds in (0.0, 10.0):
        node: Any = Disarming(seconds)
        for arming, now in (("1", 0.0), ("", 5.0)):
            safety_report(monkeypatch, node, arming, now)
        PolicyNode.look_for_end(node, 1e6)
        assert not node.done and not node.asked


def test_the_policy_node_judges_the_last_frame_and_reports_the_verdict_on_it_once(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    from hardware.ros2.policy_node import PolicyNode

    judge = Verdicts()
    node = Disarming(0.0, judge)
    node.observer.observation = lambda: frame(1.0)
    safety_report(monkeypatch, node, "1", 0.0)
    node.end.add(frame(0.0), ACTION)
    PolicyNode.tell_verdict(node)  # type: ignore[arg-type]
    assert not node.reported, "the episode goes on"
    judge.settled = False
    safety_report(monkeypatch, node, "", 5.0)
    assert judge.calls[-1] == ("add", 0.0, [1.0, 1.0])
    PolicyNode.tell_verdict(node)  # type: ignore[arg-type]
    assert not node.reported, "the model looks"
    judge.settled = True
    for _ in range(2):
        PolicyNode.tell_verdict(node)  # type: ignore[arg-type]
    assert node.reported == [""] and node.end.verdict()["done"]


def test_the_reward_model_is_the_one_that_the_parameters_name(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    interface = Interface({"proprio": ArraySpec((2,))}, ArraySpec((3,)), 20.0, "panda", "tcp_delta")
    assert nodes.judge(PolicyParameters(), interface) is None
    for wrong in ("task", "key"):
        with pytest.raises(BadInput, match="reward"):
            nodes.judge(PolicyParameters(reward=wrong), interface)
    (tmp_path / "own_reward.py").write_text(
        "class Never:\n    def __init__(self, interface): pass\n    def score(self, windows, prompts): return []\n"
    )
    monkeypatch.syspath_prepend(tmp_path)
    found = nodes.judge(PolicyParameters(reward="own_reward:Never"), interface)
    assert found is not None and not found.solved
    found.close()


@pytest.mark.parametrize(("ends", "after"), [(False, 1), (True, 3)])
def test_a_verdict_on_a_whole_episode_takes_one_sure_frame_and_one_that_ends_it_three(
    ends: bool, after: int, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    interface = Interface({"proprio": ArraySpec((2,))}, ArraySpec((3,)), 20.0, "panda", "tcp_delta")
    (tmp_path / "own_always.py").write_text(
        "import numpy as np\nfrom robolearn.core import Score\n\n\n"
        "class Always:\n    def __init__(self, interface): pass\n\n"
        "    def score(self, windows, prompts):\n        one = np.ones(len(windows[0]), 'f4')\n"
        "        return [Score(one, one, one > 0, one)]\n"
    )
    monkeypatch.syspath_prepend(tmp_path)
    found = nodes.judge(PolicyParameters(reward="own_always:Always", reward_ends=ends), interface)
    assert found is not None
    solved = []
    found.begin("", {"proprio": np.zeros(2, np.float32)})
    for _ in range(3):
        found.add(np.zeros(3, np.float32), {"proprio": np.zeros(2, np.float32)})
        until = time.monotonic() + 20
        while not found.settled:
            assert time.monotonic() < until
            time.sleep(0.001)
        solved.append(found.solved)
    assert solved == [i >= after for i in (1, 2, 3)]
    found.close()
