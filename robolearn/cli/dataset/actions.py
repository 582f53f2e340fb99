"""``robolearn dataset label-actions``: actions for a set that has none, by inverse dynamics."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import tyro

from robolearn.cli.dataset.common import show_stored, write_set
from robolearn.core import BadInput
from robolearn.core.specs import PREDICTED_ACTIONS
from robolearn.runs import Progress
from robolearn.runs.command import Command, check_seed
from robolearn.train.settings import InverseDynamicsConfig

if TYPE_CHECKING:
    from rich.console import Console


@dataclass(frozen=True, kw_only=True)
class DatasetLabelActions(Command):
    """Write a new set whose actions are predicted from its observations, by a model of a set that has actions (SS-ORL).

    The model looks at the vectors that both sets have, before and after each step. Its error on held-out episodes
    stands beside that of the mean action; where it is no better nothing is written. The new set says that its actions
    are predicted, and whatever trains on it says so.

    Example: robolearn dataset label-actions data/watched --from data/lift --out data/labelled
    """

    data: tyro.conf.Positional[Path]
    """The set without actions; those of one that has some are replaced. It stays as it is."""
    labelled: Annotated[Path, tyro.conf.arg(name="from")]
    """The set whose actions are learned from: of the same arm at the same rate."""
    out: Path
    """The new data set's folder."""
    settings: InverseDynamicsConfig = field(default_factory=InverseDynamicsConfig)

    def run(self) -> dict[str, Any]:
        from robolearn.data.convert import edit
        from robolearn.data.convert.source import check_new, open_numbers
        from robolearn.data.mixture import check_actions
        from robolearn.data.reading.reader import Dataset
        from robolearn.train.inverse_dynamics import fit, shared_features

        check_new(self.out)
        check_seed(self.settings.seed)
        labelled = open_numbers(self.labelled)
        check_actions(labelled)
        if PREDICTED_ACTIONS in labelled.interface.extra:
            raise BadInput(f"--from {self.labelled}", got="predicted actions", expected="actions that were executed")
        dataset = Dataset.open(self.data, images=False, acting=labelled.interface)
        features = shared_features(labelled.interface, dataset.interface, f"data set {self.data}")
        with Progress(
            "inverse dynamics", total=self.settings.steps, unit="gradient steps", quiet=self.json
        ) as progress:
            model, errors = fit(self.settings, labelled, features, progress)
        found = errors.to_json()
        mark = {"from": str(self.labelled), "error": found["error"], "mean_action_error": found["mean_action_error"]}
        source = edit.act(dataset, labelled.interface, lambda e: model.label(dataset, e), mark)
        return {"observes": list(features), **found, **write_set(source, self.out, "labelling", self.json)}

    def show(self, result: Mapping[str, Any], console: Console) -> None:
        show_stored(result, console)
        console.print(f"error       {result['error']:.4f}, the mean action's {result['mean_action_error']:.4f} (mean "
                      f"squares on {result['held_out_episodes']} episodes that were held out)")  # fmt: skip
        console.print(f"from        {', '.join(result['observes'])}, before and after each step")
        console.print(f"next        robolearn train --data {self.labelled} {result['dataset']} --out runs/… : a policy "
                      "that imitates both")  # fmt: skip
