"""Does a quality report help? Small policies trained with and without its advice, compared from the same starts.

All three are trained alike on the observed vectors of one data set; they differ in how often an episode is drawn:

    alike      every episode
    weighted   by the sampling weights of the report
    dropped    every episode but those to drop
"""

from __future__ import annotations

from collections.abc import Sequence
from contextlib import closing
from typing import Any

from robolearn.runs import Progress

SEEDS_APART = 1000  # the starts of the evaluation are not those of the demonstrations


def check_task(task: str, dataset: Any) -> None:
    """Raise `BadInput` unless `task` offers what a policy of `dataset` needs."""
    from robolearn.core import check_compatible
    from sim.registry import WorldConfig

    with closing(WorldConfig(task).matching(dataset.interface).build(1)) as env:
        check_compatible(dataset.interface, env.interface, what=f"--prove {task}", subject="the data set")


def prove(
    dataset: Any, weights: Sequence[float], task: str, steps: int, episodes: int, seed: int, quiet: bool
) -> dict[str, Any]:
    """Train and evaluate.

    Args:
      dataset: a `robolearn.data.Dataset` without its pictures.
      weights: the advice, one per episode; 0 for an episode to drop.
      steps: gradient steps of each policy.
      episodes: of each evaluation.
      quiet: without progress bars.

    Returns:
      ``policies``: name and success of each; ``verdicts``: of the weighted and the dropped one against the one that
      draws all alike.
    """
    from robolearn.eval import compare, corrected, evaluate
    from robolearn.presets import WORLDS
    from robolearn.train.imitation import ImitationConfig, ImitationTrainer
    from sim.registry import WorldConfig

    draws: dict[str, list[float] | None] = {"alike": None, "weighted": list(weights)}
    if any(weight == 0 for weight in weights):
        draws["dropped"] = [float(weight > 0) for weight in weights]
    config = ImitationConfig(steps=steps, seed=seed)
    found = {}
    with closing(WorldConfig(task).matching(dataset.interface).build(WORLDS)) as env:
        for name, drawn in draws.items():
            trainer = ImitationTrainer.of_dataset(config, dataset, weights=drawn)
            with Progress(f"training {name}", total=config.iterations, unit="iterations", quiet=quiet) as progress:
                for i in range(config.iterations):
                    trainer.iterate(i)
                    progress(i + 1)
            with Progress(f"evaluating {name}", total=episodes, unit="episodes", quiet=quiet) as progress:
                found[name] = evaluate(
                    env, trainer.policy(), episodes, SEEDS_APART + seed, progress=lambda done, _, p=progress: p(done)
                )
    others = {name: result for name, result in found.items() if name != "alike"}
    verdicts = [compare(found["alike"], result, names=("all alike", name)) for name, result in others.items()]
    return {
        "task": task,
        "policies": [{"name": name, "success": result.to_json()["success"]} for name, result in found.items()],
        "verdicts": [verdict.to_json() for verdict in corrected(verdicts)],
    }
