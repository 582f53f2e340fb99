"""Reference pages for the site, made of configs and docstrings: contracts, algorithms, settings, plug-ins."""

from __future__ import annotations

import ast
import inspect
import itertools
import re
import textwrap
import types
from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import MISSING, Field, dataclass, fields, is_dataclass
from pathlib import Path
from typing import Annotated, Any, Literal, Union, get_args, get_origin, get_type_hints

import tyro
from pydantic import GetPydanticSchema

SUPPRESSED = get_args(tyro.conf.Suppress[str])[1]
WORDS = {float: "number", int: "whole number", bool: "true or false", str: "word", Path: "path"}


@dataclass(frozen=True)
class Setting:
    """One key or flag; `text` is its docstring."""

    key: str
    type: str
    default: str
    text: str

    @property
    def unit(self) -> str:
        """Of a number, as its docstring has it in brackets."""
        found = re.findall(r"\[([^\],]+)\]", self.text) if "number" in self.type else ()
        return ", ".join(dict.fromkeys(found))


def contract() -> str:
    """Every key of a contract."""
    from robots.stations.contract_file import ContractFile

    parts = [
        "# Keys of a contract",
        "All keys of a station's YAML file. [Contracts](robots/README.md#contracts) has examples.",
    ]
    columns, found = ("key", "type", "default", "unit"), list(keys(ContractFile))
    parts += ["## The file", table((one for one in found if "." not in one.key), *columns)]
    for title, inner in itertools.groupby((one for one in found if "." in one.key), lambda one: one.key.split(".")[0]):
        parts += [f"## {title}", table(inner, *columns)]
    return "\n\n".join(parts) + "\n"


def algorithms() -> str:
    """Every algorithm with its flags."""
    from robolearn.rl.algorithms import ALGORITHMS

    parts = [
        "# Algorithms",
        "Of `--algo`; [which one](robolearn/rl/README.md#which-one) compares them. A task may change defaults.",
    ]
    parts += [variant(f"{kind.title}: `{name}`", kind, flag) for name, kind in ALGORITHMS.items()]
    return "\n\n".join(parts) + "\n"


def settings() -> str:
    """Every kind of policy, sort of reward and teleoperator with its settings."""
    from hardware.teleop import TELEOPERATORS
    from policies.registry import RL_POLICIES
    from policies.settings import POLICIES
    from robolearn.rewards.choice import REWARDS

    parts = [
        "# Policies, rewards, teleoperators",
        "## Policies that imitation trains",
        "What `--policy` of `train` takes.",
    ]
    parts += [variant(f"`{name}`", kind, flag, "###") for name, kind in POLICIES.items()]
    parts += ["## Policies that RL makes", "Settings in a checkpoint's `config.json`."]
    parts += [variant(f"`{name}`", kind, plain_name, "###") for name, kind in RL_POLICIES.items()]
    parts += [
        "## Rewards",
        "What `--reward` takes; settings that the text does not hold itself follow after commas, as `name=value`.",
    ]
    parts += [variant(f"`{kind.usage}`", kind, plain_name, "###") for kind in REWARDS.values()]
    parts += [
        "## Teleoperators",
        "What `--teleop` takes; a setting without dashes is one of `hardware.teleop.make_device`.",
    ]
    parts += [variant(f"`{name}`", kind, device_flag, "###") for name, kind in TELEOPERATORS.items()]
    return "\n\n".join(parts) + "\n"


def plugins() -> str:
    """Every group of plug-ins with its base classes."""
    from robolearn.core.plugins import ROOMS

    parts = [
        "# Plug-ins",
        "An installed package adds a variant by an entry point of one of these groups; `robolearn doctor` lists them.",
        '```toml\n[project.entry-points."robolearn.tasks"]\nstack = "my_lab.stack:Stack"\n```',
    ]
    for room, loads in ROOMS.items():
        parts.append(f"## robolearn.{room}\n\nThe entry point names {loads}.")
        parts += [f"`{one.__module__}`\n\n```python\n{outline(one)}\n```" for one in bases()[room]]
    return "\n\n".join(parts) + "\n"


def bases() -> dict[str, tuple[type[Any], ...]]:
    """Group of plug-ins → the class of its variants, and those that one of them is made of."""
    from hardware.teleop import Device, TeleopConfig
    from policies.settings import DenoisingConfig, PolicyConfig
    from robolearn.core import RewardModel
    from robolearn.data.convert.formats import FormatConfig
    from robolearn.rewards.config import RewardConfig
    from robolearn.rl.algorithms import OffPolicyConfig, OnPolicyConfig
    from robolearn.rl.settings import AlgorithmConfig
    from robots.own import OwnFacts
    from robots.spec import RobotSpec
    from sim.embedded.task import Task
    from sim.registry import Family

    return {
        "tasks": (Task,),
        "worlds": (Family,),
        "robots": (OwnFacts, RobotSpec),
        "teleoperators": (TeleopConfig, Device),
        "formats": (FormatConfig,),
        "policies": (PolicyConfig, DenoisingConfig),
        "rewards": (RewardConfig, RewardModel),
        "algorithms": (AlgorithmConfig, OnPolicyConfig, OffPolicyConfig),
    }


def outline(kind: type[Any]) -> str:
    """The source of a class without what its methods do, and without private ones."""
    lines = textwrap.dedent(inspect.getsource(kind)).splitlines()
    (node,) = ast.parse("\n".join(lines)).body
    assert isinstance(node, ast.ClassDef)
    for part in reversed(node.body):
        if isinstance(part, ast.FunctionDef):
            shown = ast.get_docstring(part) and not part.name.startswith("_")
            first = min([part.lineno, *(one.lineno for one in part.decorator_list)]) - 1
            lines[part.body[0].end_lineno if shown else first : part.end_lineno] = ["        ..."] if shown else []
    return re.sub(r"\n{3,}", "\n\n", "\n".join(lines)).strip()


# --- tables ------------------------------------------------------------------------------------------------


def variant(title: str, kind: type[Any], named: Callable[[Field[Any], Any], str], heading: str = "##") -> str:
    """A config's section: title, docstring, settings."""
    text, found = (inspect.getdoc(kind) or "").partition("\nAttributes:")[0], list(options(kind, named))
    return "\n\n".join([f"{heading} {title}", text.strip(), *([table(found, "key", "default")] if found else [])])


def table(found: Iterable[Setting], *columns: str) -> str:
    """The settings as lines of a table; `columns` before the docstring."""
    lines = [[*columns, "meaning"], ["---"] * (len(columns) + 1)]
    for one in found:
        cells = {"key": f"`{one.key}`", "type": one.type, "default": one.default, "unit": one.unit}
        lines.append([*(cells[column] for column in columns), " ".join(one.text.split())])
    return "\n".join("| " + " | ".join(cell.replace("|", "\\|") for cell in line) + " |" for line in lines)


def keys(form: type[Any], above: str = "") -> Iterator[Setting]:
    """The keys of a section of a contract, and of the sections in it."""
    hints, texts = get_type_hints(form, include_extras=True), documented(form)
    for one in fields(form):
        if one.name not in getattr(form, "injected", ()):
            key, hint = f"{above}{one.name}", hints[one.name]
            yield Setting(key, type_words(hint), shown(default_of(one)), texts.get(one.name, ""))
            for below, inner in sections(hint):
                yield from keys(inner, f"{key}.{below}")


def options(kind: type[Any], named: Callable[[Field[Any], Any], str], values: Any = None) -> Iterator[Setting]:
    """The settings of a config, by the names that `named` gives to its fields, and of the configs in it.

    Args:
      values: an instance with the defaults.
    """
    hints, texts = get_type_hints(kind, include_extras=True), documented(kind)
    for one in fields(kind):
        value = default_of(one) if values is None else getattr(values, one.name)
        if is_dataclass(value):
            yield from options(type(value), named, value)
        elif name := named(one, hints[one.name]):
            text = one.metadata.get("help", texts.get(one.name, ""))
            yield Setting(name, type_words(hints[one.name]), shown(value), text)


def flag(one: Field[Any], hint: Any) -> str:
    """The flag of the commands for a field; empty where it has none."""
    notes = getattr(hint, "__metadata__", ())
    if SUPPRESSED in notes:
        return ""
    return "--" + next((note.name for note in notes if getattr(note, "name", None)), one.name.replace("_", "-"))


def device_flag(one: Field[Any], hint: Any) -> str:
    """The flag of the commands for a field of a teleoperator, or its name where it has none."""
    return f"--{one.metadata['flag'].replace('_', '-')}" if "flag" in one.metadata else one.name


def plain_name(one: Field[Any], hint: Any) -> str:
    """The name of a field."""
    return one.name


# --- what classes say --------------------------------------------------------------------------------------


def documented(kind: type[Any]) -> dict[str, str]:
    """Field → docstring: of the Attributes of a class and its bases, or below the field; of a form in another's words,
    also the other's."""
    from robots.limits import Limits
    from robots.stations.contract import Contract
    from robots.stations.contract_file import ContractFile, LimitsForm
    from robots.stations.parts import Gripper, GripperForm

    other = {ContractFile: Contract, LimitsForm: Limits, GripperForm: Gripper}.get(kind)
    found = documented(other) if other else {}
    for one in reversed(kind.__mro__[:-1]):
        listed = inspect.cleandoc(one.__doc__ or "").partition("Attributes:\n")[2]
        for names, text in re.findall(r"^  (\w+(?:, \w+)*): (.*(?:\n {4}.*)*)", listed, re.MULTILINE):
            found |= dict.fromkeys(names.split(", "), text)
        (node,) = ast.parse(textwrap.dedent(inspect.getsource(one))).body
        for part, below in itertools.pairwise(getattr(node, "body", ())):
            if (
                isinstance(part, ast.AnnAssign)
                and isinstance(below, ast.Expr)
                and isinstance(below.value, ast.Constant)
            ):
                found[ast.unparse(part.target)] = inspect.cleandoc(str(below.value.value))
    return found


def default_of(one: Field[Any]) -> Any:
    """The default of a field; `MISSING` where it has none."""
    return one.default if one.default_factory is MISSING else one.default_factory()


def shown(value: Any) -> str:
    """A default as a reader writes it."""
    if value is MISSING:
        return "required"
    if value is None or value in ("", (), {}) or is_dataclass(value):
        return ""
    if isinstance(value, bool | int | float):
        return f"`{str(value).lower()}`"
    return f"`{list(value) if isinstance(value, tuple) else value}`"


def sections(hint: Any) -> Iterator[tuple[str, type[Any]]]:
    """Sections of a contract that a type is made of; ``<name>.`` before one of several with names of the user's."""
    if isinstance(hint, type) and is_dataclass(hint):
        yield "", hint
        return
    read_by = [note for note in getattr(hint, "__metadata__", ()) if isinstance(note, GetPydanticSchema)]
    forms = [inspect.getclosurevars(note.get_pydantic_core_schema).nonlocals["form"] for note in read_by]
    named = "<name>." if is_mapping(hint) else ""
    for one in forms or get_args(hint):
        yield from ((named + below, form) for below, form in sections(one))


def is_mapping(hint: Any) -> bool:
    return isinstance(kind := get_origin(hint), type) and issubclass(kind, Mapping)


def type_words(hint: Any) -> str:
    """A type in words, with what its validators expect."""
    kind, args = get_origin(hint), get_args(hint)
    if kind is Annotated:
        called = [getattr(note, "func", None) for note in hint.__metadata__]
        bound = [inspect.getclosurevars(one).nonlocals for one in called if inspect.isfunction(one)]
        limits = [words.get("expected") or ", ".join(words.get("available", ())) for words in bound]
        return type_words(args[0]) + (f" ({', '.join(given)})" if (given := [*filter(None, limits)]) else "")
    if kind in (Union, types.UnionType):
        return " or ".join(type_words(one) for one in args if one is not type(None))
    if kind is Literal:
        return " or ".join(map(str, args))
    if kind is tuple:
        return f"list of {type_words(args[0])}" if args[1:] == (...,) else f"list of {len(args)}: {type_words(args[0])}"
    if is_mapping(hint):
        return f"{type_words(args[1])} by {'name' if args[0] is str else type_words(args[0])}"
    return WORDS.get(hint, "section" if is_dataclass(hint) else getattr(hint, "__name__", str(hint)))
