"""Training on the better half of mixed demonstrations beats training on the worse half. Run by ``make test-quality``.

Forty episodes each of an expert, a fair and a poor demonstrator are mixed and ranked by `robolearn.data.quality`, which
is not told who made what. One policy is trained on the better half, one on the worse half, both alike, and both meet
the same starts. Exit code 0 where the 95% intervals of their success rates do not overlap, 1 where they do.
"""

from __future__ import annotations

import argparse
import sys
import tempfile
import time
from collections import Counter
from pathlib import Path

from mixed_demonstrators import DEMONSTRATORS, mix

from robolearn.data import Dataset, EpisodeWriter
from robolearn.data.quality import Demonstrations, assess
from robolearn.eval import evaluate
from robolearn.train.imitation import ImitationConfig, ImitationTrainer
from sim.registry import make_env


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--task", default="lift")
    parser.add_argument("--each", type=int, default=40, help="episodes of each demonstrator")
    parser.add_argument("--steps", type=int, default=1500, help="gradient steps")
    parser.add_argument("--episodes", type=int, default=400, help="of each evaluation")
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--blind", action="store_true", help="rank without being told of successes and rewards")
    args = parser.parse_args()
    with tempfile.TemporaryDirectory() as folder:
        made_by = mix(Path(folder) / "mix", args.task, args.each, args.seed)
        dataset = Dataset.open(Path(folder) / "mix")
        if args.blind:
            for name in ("next.success", "next.reward"):
                dataset.info["features"].pop(name)
        ranking = [j.episode for j in assess(Demonstrations.of(dataset)).episodes]
        half = len(ranking) // 2
        results = []
        for name, chosen in (("better half", ranking[:half]), ("worse half", ranking[half:])):
            _copy(dataset, sorted(chosen), Path(folder) / name.replace(" ", "-"))
            begun = time.perf_counter()
            config = ImitationConfig(steps=args.steps, seed=args.seed)
            trainer = ImitationTrainer.of_dataset(config, Dataset.open(Path(folder) / name.replace(" ", "-")))
            for i in range(config.iterations):
                trainer.iterate(i)
            env = make_env(args.task, 50)
            try:
                found = evaluate(env, trainer.policy(), args.episodes, 1000 + args.seed).success
            finally:
                env.close()
            makers = Counter(made_by[e] for e in chosen)
            print(
                f"{name}: {', '.join(f'{makers[d]} {d}' for d in DEMONSTRATORS)}; "
                f"success {found.rate:.1%} ({found.low:.1%} to {found.high:.1%}, {found.episodes} episodes), "
                f"{time.perf_counter() - begun:.0f} s",
                flush=True,
            )
            results.append(found)
    better, worse = results
    apart = better.low > worse.high
    print("the intervals do not overlap" if apart else "the intervals overlap, or the worse half is better")
    return 0 if apart else 1


def _copy(dataset: Dataset, episodes: list[int], path: Path) -> None:
    with EpisodeWriter(path, dataset.interface) as writer:
        writer.write_all(dataset.episode(e) for e in episodes)


if __name__ == "__main__":
    sys.exit(main())
