"""Answers of vision-language models, taken apart: ratings, percentages, expected numbers; None where it is none."""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import dataclass

RATING = re.compile(r"ANSWER:\s*(\d+)")
PERCENTAGE = re.compile(r"Frame\s+(\d+)\s*:\s*(\d+(?:\.\d+)?)\s*%")
LEAST = 0.1  # of the most probable number: others below it are noise


@dataclass(frozen=True)
class GeneratedAnswer:
    """A generated answer.

    Attributes:
      text: of all its tokens.
      tokens: for each, texts and probabilities of the most probable ones, the chosen one first.
    """

    text: str
    tokens: Sequence[Sequence[tuple[str, float]]]


def rating(answer: GeneratedAnswer, most: int = 5) -> tuple[int, float] | None:
    """The number from 1 to `most` after ``ANSWER:``, and the probability of the token that it ends in."""
    found = RATING.search(answer.text)
    if found is None or not 1 <= int(found[1]) <= most:
        return None
    said = ""
    for token in answer.tokens:
        said += token[0][0]
        if (so_far := RATING.search(said)) is not None and int(so_far[1]) == int(found[1]):
            return int(found[1]), token[0][1]
    return None


def percentages(text: str, frames: int) -> list[float] | None:
    """The percentage of each of the frames 1 to `frames`, in their order: ``Frame 2: 40%``, each frame once."""
    found = PERCENTAGE.findall(text)
    values = {int(frame): float(value) for frame, value in found}
    if len(found) != frames or sorted(values) != [*range(1, frames + 1)] or max(values.values(), default=0.0) > 100.0:
        return None
    return [values[frame] for frame in range(1, frames + 1)]


def expected_number(tokens: Sequence[Sequence[tuple[str, float]]]) -> float | None:
    """The mean of a number that is written in tokens of digits, with an optional sign.

    E = ± Σ_k 10^{digits after k} · Σ_d p_k(d) d / Σ_d p_k(d)      over the texts d of digits that are likely at k
    """
    sign, places = 1.0, []
    for token in tokens:
        text = token[0][0].strip()
        if text in ("+", "-") and not places:
            sign = -1.0 if text == "-" else 1.0
        elif text.isdecimal() and text.isascii():
            places.append(token)
        elif text or places:
            break
    if not places:
        return None
    value, after = 0.0, sum(len(token[0][0].strip()) for token in places)
    for token in places:
        after -= len(token[0][0].strip())
        likely = [(float(d.strip()), p) for d, p in token if d.strip().isdecimal() and p > LEAST * token[0][1]]
        value += 10.0**after * sum(d * p for d, p in likely) / sum(p for _, p in likely)
    return sign * value
