"""A learner whose reward model is served by another process: its episodes wait, are withheld, and are scored again."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path

import numpy as np
import pytest

from robolearn.core import ArraySpec, Interface, Score, Window
from robolearn.data.replay import PlayedEpisode, ScoreLog
from robolearn.hil.experience import ClosedEpisode
from robolearn.hil.scoring import EpisodeScoring
from robolearn.io.wire.security import Address
from robolearn.io.wire.server import GrpcServer
from robolearn.rewards.choice import make_reward
from robolearn.rewards.serving.service import RewardService
from robolearn.rewards.serving.settings import TOKEN_VARIABLE
from robolearn.rewards.stored import model_name

pytestmark = pytest.mark.long

INTERFACE = Interface({"proprio": ArraySpec((1,))}, ArraySpec((1,)), 20.0)
TOKEN = "a token of enough length"


class Reached:
    """The reward is where a step leads to."""

    needs_prompt = True

    def score(self, windows: Sequence[Window], prompts: Sequence[str]) -> list[Score]:
        found = []
        for window in windows:
            x = window.observation["proprio"][1:, 0].astype(np.float32)
            found.append(Score(np.clip(x, 0.0, 1.0), x, x >= 1.0, np.ones(len(x), np.float32)))
        return found


@contextmanager
def served(port: int = 0) -> Iterator[GrpcServer]:
    service = RewardService(Reached(), INTERFACE, "reached", "one", 4)
    server = GrpcServer(Address("127.0.0.1", port), service.handlers(), TOKEN)
    try:
        yield server
    finally:
        server.close()


def closed(number: int, *x: float) -> ClosedEpisode:
    steps = len(x) - 1
    observation, action = {"proprio": np.array(x, np.float32)[:, None]}, np.zeros((steps, 1), np.float32)
    episode = PlayedEpisode(observation, action, np.zeros(steps, np.float32), np.zeros(steps, bool), False, False, "go")
    return ClosedEpisode("a", number, 9 * number, False, episode)


def test_a_server_that_is_away_costs_the_episode_and_not_the_run(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv(TOKEN_VARIABLE, TOKEN)
    with served() as server:
        model = make_reward(f"serve:{server.address},timeout_s=1", INTERFACE)
        assert model is not None
        scoring = EpisodeScoring(model, model_name("serve", model), ScoreLog(tmp_path), 30.0)
        first = scoring.score_now(closed(0, 0.0, 0.25, 1.0))
        assert first.score is not None and first.score.reward.tolist() == [0.25, 1.0] and first.model == "one"
    away = scoring.score_now(closed(1, 0.0, 0.5))
    assert away.score is None and "RewardWithheld" in away.withheld and "nothing within 1 s" in away.withheld
    with served(server.address.port):
        again = scoring.score_now(closed(2, 0.0, 0.75))
        assert again.score is not None and again.score.reward.tolist() == [0.75]
        assert scoring.made == 3 and scoring.score_now(closed(0, 0.0, 0.25, 1.0)).score is not None
        assert scoring.made == 3, "a stored score is not asked for again"
    scoring.close()
