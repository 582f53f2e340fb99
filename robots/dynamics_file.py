"""Dynamics files: distributions of an arm's dynamics in YAML or JSON, read with one line for every mistake.

robot: panda                      # may be left out where no list is of one arm
parameters:
  link_mass: {uniform: [0.7, 1.3]}
  gain: {mean: [1.1, 0.9, 1.0, 1.2, 0.8, 1.0, 1.0], sd: 0.02, when: world}
  command_delay: 0.04             # a constant
correlation: {names: [gain.0, damping.0], matrix: [[1.0, 0.9], [0.9, 1.0]]}
"""

from __future__ import annotations

import json
from dataclasses import replace
from pathlib import Path
from typing import Annotated, Any

import numpy as np
from pydantic import BeforeValidator, TypeAdapter, ValidationError

from robolearn.core.errors import BadInput
from robolearn.io.atomic import write_text
from robolearn.io.json_files import read_json
from robots.arms import ROBOTS
from robots.dynamics import DYNAMICS, NONE, PARAMETERS, WHEN, DynamicsConfig, Spread, dynamics_names
from robots.stations.folder import DYNAMICS as DYNAMICS_FILE
from robots.stations.folder import in_station
from robots.stations.values import Finite, Word, bad_input, known_keys, one_of, place, read_yaml, section

Numbers = Annotated[tuple[Finite, ...], BeforeValidator(lambda value: value if isinstance(value, list) else [value])]


@section
class _Form:
    """A distribution as it stands in a file."""

    uniform: tuple[Numbers, Numbers] | None = None
    mean: Numbers | None = None
    sd: Numbers | None = None
    when: Annotated[Word, one_of(WHEN)] = "episode"


@section
class _Correlation:
    names: tuple[Word, ...]
    matrix: tuple[tuple[Finite, ...], ...]


def _constant(value: Any) -> Any:
    return value if isinstance(value, dict) else {"mean": value, "sd": 0.0}


def _spreads(data: Any) -> Any:
    return {name: _constant(value) for name, value in known_keys(data, PARAMETERS).items()}


@section
class _File:
    parameters: Annotated[dict[str, _Form], BeforeValidator(_spreads)]
    robot: Annotated[Word, one_of(ROBOTS)] | None = None
    correlation: _Correlation | None = None
    source: Word = ""  # of the file, for people


def load_dynamics(name: str) -> DynamicsConfig:
    """The level, the file (YAML or JSON) or the station's folder called `name`; what a file does not name is as at
    ``none``. Raises `BadInput`: none of them, or a mistake in the file."""
    if name in DYNAMICS:
        return DYNAMICS[name]
    path = in_station(Path(name), DYNAMICS_FILE)
    if path.suffix not in (".yaml", ".yml", ".json"):
        raise BadInput("dynamics", got=name, available=dynamics_names())
    if not path.is_file():
        hint = f"robolearn identify --robot {name} --write makes it" if Path(name).is_dir() else ""
        raise BadInput("dynamics", got=f"{path}, which is not there", available=dynamics_names(), hint=hint)
    found = read_dynamics(path)
    return replace(found, spreads={**NONE.spreads, **found.spreads})


def read_dynamics(path: Path) -> DynamicsConfig:
    """The distributions in `path`. Raises `BadInput`: what is wrong, where in the file."""
    # For YAML 1.1, the 1e-09 of JSON is no number.
    data = read_json(path, what=f"dynamics {path}") if path.suffix == ".json" else read_yaml(path)
    try:
        found = TypeAdapter(_File).validate_python(data)
    except ValidationError as error:
        raise bad_input(error, place(path)) from None
    spreads = {name: _spread(form, f"{place(path)}: {name}", name) for name, form in found.parameters.items()}
    names, matrix = (found.correlation.names, found.correlation.matrix) if found.correlation else ((), ())
    config = DynamicsConfig(str(path), spreads, found.robot or "", names, matrix)
    _check_correlation(config, place(path))
    if config.robot:
        config.check(ROBOTS[config.robot])
    return config


def _spread(form: _Form, what: str, name: str) -> Spread:
    parameter = PARAMETERS[name]
    if (form.uniform is None) == (form.mean is None) or (form.sd is not None and form.mean is None):
        raise BadInput(what, got="both or neither", expected="uniform: [low, high], or mean: and sd:")
    if parameter.per == "thing" and form.when != "episode":
        raise BadInput(what, got=f"when: {form.when}", expected="when: episode, as things of a task are")
    bounds = f"{parameter.low:g} to {parameter.high:g} {parameter.unit}"
    if form.uniform is not None:
        low, high = form.uniform
        if len(low) != len(high) or not all(a <= b for a, b in zip(low, high, strict=True)):
            raise BadInput(what, got=f"{list(low)} to {list(high)}", expected="low at most high, lists of one length")
        spread, limits = Spread("uniform", low, high, form.when), (*low, *high)  # type: ignore[arg-type]
    else:
        assert form.mean is not None
        sd = form.sd or (0.0,)
        if min(sd) < 0.0:
            raise BadInput(f"{what}: sd", got=min(sd), expected="0 or more")
        spread, limits = Spread("normal", form.mean, sd, form.when), form.mean  # type: ignore[arg-type]
    for value in limits:
        if not parameter.low <= value <= parameter.high:
            raise BadInput(what, got=f"{value:g}", expected=bounds)
    return spread


def _check_correlation(config: DynamicsConfig, what: str) -> None:
    if not config.correlated:
        return
    n = len(config.correlated)
    square = len(config.correlation) == n and all(len(row) == n for row in config.correlation)
    for name in config.correlated:
        base = name.partition(".")[0]
        if base not in config.spreads or PARAMETERS[base].per == "thing":
            available = [one for one in config.spreads if PARAMETERS[one].per != "thing"]
            hint = "Things of a task are drawn by themselves" if base in config.spreads else ""
            raise BadInput(f"{what}: correlation", got=name, available=available, hint=hint)
    if len(set(config.correlated)) < n:
        again = next(name for name in config.correlated if config.correlated.count(name) > 1)
        raise BadInput(f"{what}: correlation", got=f"{again} twice", expected="each name once")
    whens = {config.spreads[name.partition(".")[0]].when for name in config.correlated}
    if len(whens) > 1:
        raise BadInput(f"{what}: correlation", got=f"parameters drawn by {sorted(whens)}", expected="one `when`")
    values = np.array(config.correlation, dtype=np.float64) if square else np.zeros((0, 0))
    good = square and np.allclose(values, values.T) and np.allclose(np.diag(values), 1.0)
    if not good or np.linalg.eigvalsh(values).min() <= 0.0:
        expected = f"a positive definite {n} × {n} matrix with ones on its diagonal"
        raise BadInput(f"{what}: correlation.matrix", got="another", expected=expected)


def dynamics_text(config: DynamicsConfig, source: str = "") -> str:
    """`config` as the text of a file (JSON)."""
    parameters = {}
    for name, spread in config.spreads.items():
        form: dict[str, Any] = (
            {"uniform": [list(spread.a), list(spread.b)]}
            if spread.kind == "uniform"
            else {"mean": list(spread.a), "sd": list(spread.b)}
        )
        parameters[name] = form | {"when": spread.when}
    data: dict[str, Any] = {"robot": config.robot} if config.robot else {}
    data |= {"source": source} if source else {}
    data["parameters"] = parameters
    if config.correlated:
        data["correlation"] = {"names": list(config.correlated), "matrix": [list(row) for row in config.correlation]}
    return json.dumps(data, indent=1)


def write_dynamics(path: Path, config: DynamicsConfig, source: str = "") -> Path:
    """Write `config` to `path`."""
    write_text(path, dynamics_text(config, source) + "\n")
    return path
