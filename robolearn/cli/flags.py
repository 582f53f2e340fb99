"""Flags as people read and write them: pairs of switches, short placeholders in the help, errors in one sentence.

tyro makes the flags of a command's dataclass. Here is what it is told about them, and what is made of its complaints.
"""

from __future__ import annotations

import contextlib
import dataclasses
import difflib
import io
import re
import textwrap
import types
import typing
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import replace
from typing import Any, Union, get_args

import tyro
from tyro.constructors import ConstructorRegistry, PrimitiveConstructorSpec, PrimitiveTypeInfo

from robolearn.core import BadInput

CONFIG = (tyro.conf.FlagCreatePairsOff, tyro.conf.AvoidSubcommands, tyro.conf.OmitArgPrefixes)
TAKES = {"INT": "a whole number", "FLOAT": "a number", "PATH": "a path", "STR": "a word"}
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


def parse_flags(kind: type[Any], prog: str, args: Sequence[str], defaults: Mapping[str, Any]) -> Any:
    """An instance of the dataclass `kind` with `args` as its flags.

    Args:
      kind: the command.
      prog: how it is called, e.g. ``"robolearn train"``.
      args: words after it.
      defaults: ``{"default": instance}``, or nothing.

    Raises:
      BadInput: a flag is unknown, missing or has a wrong value.
      SystemExit: help was asked for and printed.
    """
    usual = switches(kind)
    end = list(args).index("--") if "--" in args else len(args)
    said = [word for i, word in enumerate(args) if i >= end or word not in usual]
    complaint = io.StringIO()
    try:
        with registry, contextlib.redirect_stderr(complaint):
            return tyro.cli(kind, prog=prog, args=said, config=CONFIG, **defaults)
    except SystemExit as stop:
        if not stop.code:
            raise
        raise BadInput(f"{prog}: {explain(complaint.getvalue())}", hint=f"See {prog} --help") from None


def switches(kind: type[Any]) -> frozenset[str]:
    """``--name`` of the switches of `kind` that are on by default, where ``--no-name`` turns them off.

    Said aloud they change nothing, and tyro is not shown them.
    """
    names: set[str] = set()
    hints = typing.get_type_hints(kind)
    for field in dataclasses.fields(kind):
        if field.default is True:
            names.add(f"--{field.name.replace('_', '-')}")
        for part in (hints[field.name], *get_args(hints[field.name])):  # of nested settings, whichever of a union
            if isinstance(part, type) and dataclasses.is_dataclass(part):
                names |= switches(part)
    return frozenset(names)


def explain(box: str) -> str:
    """What tyro says in a box of several lines, as a sentence."""
    # Drawn with lines, or with | + - where the terminal knows no others.
    lines = [re.sub(r"\s*[│╮╯|+]?$", "", re.sub(r"^[│╭╰|+] ?", "", line)) for line in box.splitlines()]
    text = "\n".join(line for line in lines if not set(line) <= set("─- "))
    text = re.split(r"\n *For full helptext", text)[0]
    sentences = [*_missing(text), *_unknown(text), *_without_value(text), *_wrong(text), *_no_choice(text)]
    if sentences:
        return "; ".join(sentences)
    flat = " ".join(re.sub(r"^[─-]+[^\n]*\n", "", text).split())
    return flat or "bad flags"


def _missing(text: str) -> Iterator[str]:
    found = re.search(r"Missing from [^\n]*:\n((?: +[^\n]*(?:\n|$))+)", text)
    if found is None:
        return
    names = re.findall(r"^(\S+)", textwrap.dedent(found[1]), re.MULTILINE)
    yield f"{_and(names)} {'is' if len(names) == 1 else 'are'} missing"


def _unknown(text: str) -> Iterator[str]:
    found = re.search(r"Unrecognized options:([^\n]*(?:\n    [^\n]*)*)", text)
    if found is None:
        return
    similar = dict(re.findall(r"Arguments similar to (\S+):\n\s+(\S+)", text))
    if not similar and (one := re.search(r"(?:Perhaps you meant|Similar arguments):?\n\s+(\S+)", text)):
        similar = {"": one[1]}
    flag = ""
    for word in re.split(r"[,\s]+", found[1].strip()):
        if word.startswith("-"):
            flag = word
            near = similar.get(word, similar.get(""))
            yield f"there is no flag {word}" + (f" (did you mean {near}?)" if near else "")
        elif not flag:  # else it is the value of a flag that is none
            yield f"{word!r} stands where no value belongs"


def _without_value(text: str) -> Iterator[str]:
    if found := re.search(r"Missing value for argument '([^']+)'", text):
        yield f"{found[1]} needs a value"


def _wrong(text: str) -> Iterator[str]:
    found = re.search(r"Error parsing ([^\n:]+):", text)
    if found is None:
        return
    name = found[1].split("/")[-1]
    metavar = re.search(rf"Argument helptext:\n\s+{re.escape(name)} ([^\n]+)", text)
    kind = re.search(r"INT|FLOAT|PATH|STR", metavar[1]) if metavar else None
    takes = TAKES[kind[0]] + ("s" if "..." in metavar[1] else "") if kind and metavar else "something else"
    takes = {"a numbers": "numbers", "a whole numbers": "whole numbers", "a words": "words"}.get(takes, takes)
    before = text.split("Argument helptext")[0]
    given = re.search(r"\['(.*?)'\]", before, re.DOTALL) or re.search(r"'([^']*)'", before)
    yield f"{name} takes {takes}" + (f", not {given[1].replace(chr(39) + ', ' + chr(39), ' ')}" if given else "")


def _no_choice(text: str) -> Iterator[str]:
    flat = " ".join(text.split())
    if found := re.search(r"invalid choice '(.*?)' for argument '([^']+)'. Expected one of \((.*?)\)", flat):
        names = re.findall(r"'([^']*)'", found[3])
        near = difflib.get_close_matches(found[1], names, n=1, cutoff=0.5)
        meant = f" (did you mean {near[0]}?)" if near else ""
        yield f"{found[2]}: got {found[1]}; available: {', '.join(names)}{meant}"


def _and(names: Sequence[str]) -> str:
    return names[0] if len(names) == 1 else f"{', '.join(names[:-1])} and {names[-1]}"
