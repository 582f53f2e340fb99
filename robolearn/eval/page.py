"""HTML reports from the templates beside this file: text is escaped, and a page loads nothing from anywhere."""

from __future__ import annotations

from typing import Any

from jinja2 import Environment, PackageLoader, StrictUndefined
from markupsafe import Markup
from matplotlib.figure import Figure

from robolearn.eval.plots import to_svg

_TEMPLATES = Environment(
    loader=PackageLoader("robolearn.eval"),
    autoescape=True,
    undefined=StrictUndefined,
    trim_blocks=True,
    lstrip_blocks=True,
)


def render_page(template: str, **values: Any) -> str:
    """The HTML of `template`, e.g. ``"report.html"``; everything but `Markup` among the values shows as text."""
    return _TEMPLATES.get_template(template).render(values)


def picture(figure: Figure, prefix: str) -> Markup:
    """`figure` as inline SVG; `prefix` keeps the ids of several pictures on one page apart."""
    return Markup(to_svg(figure, prefix))  # matplotlib escapes the texts of a figure
