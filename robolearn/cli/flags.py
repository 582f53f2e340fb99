"""Flags as people read and write them: pairs of switches, short placeholders in the help, errors in one sentence.

tyro makes the flags of a command's dataclass. Its hook `on_parse_error` gives the reason of a refusal as an object, of
which one sentence is made: got, expected, did you mean. The hook is not public yet, so pyproject.toml bounds the
versions of tyro; a refusal that is not known here is printed by tyro itself.
"""

from __future__ import annotations

import dataclasses
import itertools
import logging
import re
import types
import typing
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import replace
from typing import Any, Union, get_args

import tyro
from tyro import _errors
from tyro.constructors import ConstructorRegistry, PrimitiveConstructorSpec, PrimitiveTypeInfo

from robolearn.core import BadInput
from robolearn.core.errors import nearest

log = logging.getLogger(__name__)

CONFIG = (tyro.conf.FlagCreatePairsOff, tyro.conf.AvoidSubcommands, tyro.conf.OmitArgPrefixes)
POSITIONAL = get_args(tyro.conf.Positional[str])[1]
TAKES = {
    "INT": ("a whole number", "whole numbers"),
    "FLOAT": ("a number", "numbers"),
    "PATH": ("a path", "paths"),
    "STR": ("a word", "words"),
}
"""Placeholder in the help → a value of that kind, several of them."""
registry = ConstructorRegistry()
_asked: list[Any] = []


@registry.primitive_rule
def _short(info: PrimitiveTypeInfo) -> PrimitiveConstructorSpec | None:
    """``STR ...`` and ``PATH`` in the help, where tyro has ``[STR [STR ...]]`` and ``{None}|PATH``."""
    optional = info.type_origin in (Union, types.UnionType) and type(None) in get_args(info.type)
    many = info.type_origin is tuple and get_args(info.type)[1:] == (...,)
    if not (optional or many) or info.type in _asked:
        return None
    _asked.append(info.type)  # and now the rule of tyro for it
    try:
        spec = ConstructorRegistry.get_primitive_spec(info)
    finally:
        _asked.pop()
    if not isinstance(spec, PrimitiveConstructorSpec):
        return None
    kept = [part for part in spec.metavar.split("|") if part != "{None}"]
    metavar = re.sub(r"\[(\w+) \[\1 \.\.\.\]\]", r"\1 ...", "|".join(kept))
    metavar = re.sub(r"\{(\w+ \.\.\.)\}", r"\1", metavar)
    return replace(spec, metavar=metavar)


def parse_flags(kind: type[Any], prog: str, args: Sequence[str], default: Any = None) -> Any:
    """An instance of the dataclass `kind` with `args` as its flags.

    Args:
      kind: the command.
      prog: how it is called, e.g. ``"robolearn train"``.
      args: words after it.
      default: an instance whose values are the defaults; by default those of the class.

    Raises:
      BadInput: a flag is unknown, missing or has a wrong value.
      SystemExit: help was asked for and printed; or tyro refused the words for a reason of its own, and printed that.
    """
    switches = dict(switches_of(kind, default))
    # Of a switch tyro has only the word that changes it. The other one is no mistake.
    usual = {f"--{name}" if on else f"--no-{name}" for name, on in switches.items()}
    end = _end(args)
    said = [word for i, word in enumerate(args) if i >= end or word not in usual]

    def refuse(event: _errors.ParseErrorEvent) -> None:
        if why := _reason(event, said, sorted(flags_of(kind, default))):
            raise BadInput(f"{prog}: {why}", hint=f"See {prog} --help")

    with registry, _errors.on_parse_error(refuse):
        return tyro.cli(kind, prog=prog, args=said, config=CONFIG, **({} if default is None else {"default": default}))


def by_names_of_today(former: Mapping[str, str], given: Sequence[str], words: Sequence[str]) -> list[str]:
    """`words` with each flag of a `former` name under that of today, of which a line is logged.

    Args:
      given: those of `words` that stand on the command line itself, not in a file of flags.

    Raises:
      BadInput: a flag is given by both names there.
    """
    own = [word.partition("=")[0] for word in given[: _end(given)]]
    for old, new in former.items():
        if old in own and new in own:
            raise BadInput(old, got=f"it beside {new}", expected=f"{new} alone, which it is called now")
    found, end = list(words), _end(words)
    for i in range(end - 1, -1, -1):
        name, equals, value = found[i].partition("=")
        if name not in former:
            continue
        if not equals and found[i + 1 : i + 2] == [""]:  # a file of flags has all of them, those not given as well
            del found[i : i + 2]
            continue
        log.warning("%s is called %s now", name, former[name])
        found[i] = f"{former[name]}{equals}{value}"
    return found


def _end(words: Sequence[str]) -> int:
    """The place of the two dashes, behind which another command's words stand."""
    return list(words).index("--") if "--" in words else len(words)


def _fields(kind: type[Any], default: Any) -> Iterator[tuple[str, Any]]:
    """Flag without dashes and default value of each field of `kind`, and of the settings in it.

    Which settings those are says `default`, and where it is None the class; of a union, all that it names.
    """
    hints = typing.get_type_hints(kind, include_extras=True)
    for field in dataclasses.fields(kind):
        value = field.default if default is None else getattr(default, field.name)
        hint = hints[field.name]
        notes = getattr(hint, "__metadata__", ())
        plain_hint = get_args(hint)[0] if notes else hint
        nested = [p for p in (plain_hint, *get_args(plain_hint)) if isinstance(p, type) and dataclasses.is_dataclass(p)]
        if POSITIONAL in notes:
            continue
        if dataclasses.is_dataclass(value):
            yield from _fields(type(value), value)
        elif nested:
            for part in nested if default is None else ():
                yield from _fields(part, None)
        else:
            yield next((n.name for n in notes if getattr(n, "name", None)), field.name.replace("_", "-")), value


def switches_of(kind: type[Any], default: Any = None) -> Iterator[tuple[str, bool]]:
    """Name without dashes and default of each switch of `kind`."""
    for name, value in _fields(kind, default):
        if isinstance(value, bool):
            yield name, value


def flags_of(kind: type[Any], default: Any = None) -> Iterator[str]:
    """All words by which a flag of `kind` may be called."""
    for name, value in _fields(kind, default):
        yield f"--{name}"
        if value is True:
            yield f"--no-{name}"


def _reason(event: _errors.ParseErrorEvent, said: Sequence[str], names: Sequence[str]) -> str:
    """Reason why tyro refuses the words, as a sentence; empty for an unknown one."""
    if isinstance(event, _errors.MissingArgs):
        missing = [_name(found.arg) for found in event.missing_arguments]
        verb = "is" if len(missing) == 1 else "are"
        return "; ".join([f"{_and(missing)} {verb} missing", *_unknown(event.unrecognized_tokens, names)])
    if isinstance(event, _errors.UnrecognizedArgs):
        return "; ".join(_unknown(event.tokens, names))
    if isinstance(event, _errors.BadValue) and event.offending_value is None:
        if event.argument.is_positional():
            strange = [word for word in said if word.startswith("--") and word.split("=")[0] not in names]
            return "; ".join([f"{_name(event.argument)} is missing", *_unknown(strange, names)])
        return f"{_name(event.argument)} needs a value"
    if isinstance(event, _errors.InvalidChoice):
        choices = ", ".join(event.choices) + nearest(event.value, event.choices)
        return f"{_name(event.argument)}: got {event.value}; available: {choices}"
    if isinstance(event, _errors.InstantiationFailure) and event.argument is not None:
        return _wrong(event.argument, said)
    return ""


def _name(argument: Any) -> str:
    return str(argument.lowered.metavar) if argument.is_positional() else argument.lowered.name_or_flags[0]


def _unknown(tokens: Sequence[str], names: Sequence[str]) -> Iterator[str]:
    flag = ""
    for word in tokens:
        if word.startswith("-"):
            flag = word.split("=", 1)[0]
            yield f"there is no flag {flag}" + nearest(flag, names, 0.7)
        elif not flag:  # else it is the value of a flag that is none
            yield f"{word!r} stands where no value belongs"


def _wrong(argument: Any, said: Sequence[str]) -> str:
    """`--steps takes a whole number, not many`."""
    name, metavar = _name(argument), str(argument.lowered.metavar)
    kind = next((kind for kind in TAKES if kind in metavar), "")
    one, several = TAKES.get(kind, ("something else", "something else"))
    takes = several if "..." in metavar else one
    values: list[str] = []
    for flag in argument.lowered.name_or_flags:
        values = values or _after(said, flag)
    return f"{name} takes {takes}" + (f", not {' '.join(values)}" if values else "")


def _after(said: Sequence[str], flag: str) -> list[str]:
    """The values of the last `flag` among the words."""
    for i in range(len(said) - 1, -1, -1):
        if said[i].startswith(f"{flag}="):
            return [said[i].split("=", 1)[1]]
        if said[i] == flag:
            return list(itertools.takewhile(lambda word: not word.startswith("--"), said[i + 1 :]))
    return []


def _and(names: Sequence[str]) -> str:
    return names[0] if len(names) == 1 else f"{', '.join(names[:-1])} and {names[-1]}"
