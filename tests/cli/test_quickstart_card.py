"""The deployment's card in the report of a quickstart."""

from __future__ import annotations

import pytest

from robolearn.cli.quickstart_report import deployment


def test_a_deployment_stands_beside_the_evaluations() -> None:
    result = {"succeeded": [True, True, False, True], "episode_s": [1.5, 2.0, 9.0, 1.0], "violations": 0,
              "latency_ms": {"p50": 10.55, "p99": 12.0}}  # fmt: skip
    card = deployment(result)
    assert card.success is not None and (card.success.successes, card.success.episodes) == (3, 4)
    assert list(card.solved_s) == [1.5, 2.0, 1.0]  # type: ignore[arg-type]
    assert card.note.endswith("0 limit violations, 11 ms from observation to command")
    unknown = deployment(result | {"latency_ms": {"p50": None, "p99": None}})
    assert unknown.note.endswith("0 limit violations")


def test_a_deployment_without_a_success_is_said_so() -> None:
    card = deployment({"succeeded": [False], "episode_s": [3.0], "violations": 2, "latency_ms": {"p50": None}})
    assert card.success is not None and card.success.rate == 0.0 and not list(card.solved_s)  # type: ignore[arg-type]
    assert card.success.high == pytest.approx(0.975) and "2 limit violations" in card.note
