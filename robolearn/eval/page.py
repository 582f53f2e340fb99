"""The dress of a report: style sheet, script and the small HTML builders. Everything is inline."""

from __future__ import annotations

import html
from collections.abc import Iterable, Sequence

POLICY = "default-src 'none'; style-src 'unsafe-inline'; script-src 'unsafe-inline'; img-src data:; media-src data:"
"""Content security policy of the page: nothing can be loaded from anywhere."""

STYLE = """
:root { color-scheme: light dark;
  --paper: #fbfbfa; --card: #ffffff; --ink: #22262b; --muted: #646b74; --line: #dcdfe3; --track: #eceef0;
  --c1: #b4611f; --c2: #1f6f9f; --c3: #4b7f3c; --c4: #7d5ba6; --c5: #9c4456;
  --c6: #2b8580; --c7: #94801a; }
@media (prefers-color-scheme: dark) { :root {
  --paper: #15181b; --card: #1c2024; --ink: #e6e8ea; --muted: #9aa3ad; --line: #343a41; --track: #2a2f35;
  --c1: #e39a5b; --c2: #62b3e0; --c3: #8dc27b; --c4: #b89be0; --c5: #dd8797;
  --c6: #62c2bb; --c7: #d6c25c; } }
* { box-sizing: border-box; }
body { margin: 0; background: var(--paper); color: var(--ink); overflow-wrap: break-word;
  font: 16px/1.55 system-ui, -apple-system, "Segoe UI", Roboto, "Helvetica Neue", Arial, sans-serif; }
main { max-width: 60rem; margin: 0 auto; padding: 2.5rem 1.25rem 4rem; }
h1 { font-size: 1.9rem; line-height: 1.2; margin: 0 0 .35rem; letter-spacing: -.01em; }
h2 { font-size: 1.15rem; margin: 3rem 0 .9rem; padding-top: 1rem; border-top: 1px solid var(--line); }
h3 { font-size: .95rem; margin: 1.4rem 0 .5rem; color: var(--muted); font-weight: 600; }
p { margin: .4rem 0; } footer { margin-top: 3rem; }
.muted, figcaption, caption { color: var(--muted); font-size: .9rem; }
.grid { display: grid; gap: 1.1rem; grid-template-columns: repeat(auto-fit, minmax(min(100%, 19rem), 1fr)); }
.card, figure { background: var(--card); border: 1px solid var(--line); border-radius: 10px; padding: 1.1rem; margin: 0;
  min-width: 0; }
.outcomes { margin-top: 1.8rem; }
.name { display: flex; align-items: center; gap: .5rem; font-weight: 600; }
.swatch { width: .7rem; height: .7rem; border-radius: 2px; flex: none; display: inline-block; }
.rate { font-size: 3rem; line-height: 1.1; font-weight: 650; letter-spacing: -.02em; margin: .3rem 0 .1rem;
  font-variant-numeric: tabular-nums; }
.interval { position: relative; height: 1.9rem; margin: .9rem 0 .1rem; }
.interval .track, .interval .band { position: absolute; top: 0; height: .6rem; border-radius: 3px; }
.interval .track { left: 0; right: 0; background: var(--track); }
.interval .band { opacity: .5; min-width: 3px; }
.interval .dot { position: absolute; top: -.2rem; width: 3px; height: 1rem; margin-left: -1.5px; border-radius: 1px; }
.interval .tick { position: absolute; top: .75rem; font-size: .75rem; color: var(--muted);
  transform: translateX(-50%); white-space: nowrap; }
.interval .tick.first { transform: none; } .interval .tick.last { transform: translateX(-100%); }
.verdict { margin: 1.1rem 0 0; padding: .9rem 1.1rem; border-left: 4px solid var(--c2); background: var(--card);
  border-radius: 0 8px 8px 0; font-size: 1.1rem; }
.verdict.open { border-left-color: var(--muted); }
.scroll { overflow-x: auto; }
table { border-collapse: collapse; width: 100%; font-size: .92rem; font-variant-numeric: tabular-nums; }
th, td { text-align: left; padding: .42rem .8rem .42rem 0; border-bottom: 1px solid var(--line); vertical-align: top; }
th { color: var(--muted); font-weight: 600; } td.n, th.n { text-align: right; white-space: nowrap; }
th:last-child, td:last-child { padding-right: 0; } td .swatch { margin-right: .25rem; }
tr:last-child td { border-bottom: 0; } tr.total td { font-weight: 650; }
svg { width: 100%; height: auto; display: block; } svg text { font-family: inherit !important; }
video { width: 100%; display: block; border-radius: 6px; background: var(--track); }
figcaption { margin-top: .6rem; }
.solo { max-width: 32rem; margin-top: 1.1rem; }
.bar { display: flex; height: 1.5rem; border-radius: 5px; overflow: hidden; gap: 1px; margin: .3rem 0 .8rem; }
.bar span { min-width: 2px; }
.code { position: relative; }
pre { margin: 0; background: var(--card); border: 1px solid var(--line); border-radius: 8px; padding: 1rem;
  overflow-x: auto; font: .86rem/1.6 ui-monospace, SFMono-Regular, Menlo, Consolas, monospace; overflow-wrap: normal; }
button { font: inherit; font-size: .82rem; color: var(--muted); background: var(--paper); cursor: pointer;
  border: 1px solid var(--line); border-radius: 6px; padding: .15rem .6rem; margin-bottom: .5rem; }
button:hover { color: var(--ink); }
details { margin: .6rem 0; } .pairs td:first-child { width: 38%; color: var(--muted); }
details summary { cursor: pointer; color: var(--muted); }
@media (max-width: 36rem) { main { padding: 1.5rem .9rem 3rem; } h1 { font-size: 1.5rem; } .rate { font-size: 2.4rem; }
  th, td { padding-right: .55rem; } }
@media print { button { display: none; } .card, figure { break-inside: avoid; } }
"""

SCRIPT = """
for (const button of document.querySelectorAll('button.copy')) {
  button.hidden = false;
  button.addEventListener('click', () => {
    const range = document.createRange();
    range.selectNodeContents(document.getElementById(button.dataset.of));
    const selection = getSelection();
    selection.removeAllRanges();
    selection.addRange(range);
    button.textContent = document.execCommand('copy') ? 'copied' : 'press Ctrl-C';
  });
}
"""


def page(title: str, body: str) -> str:
    """The whole document around `body`, which is HTML already."""
    return (
        "<!doctype html>\n"
        '<html lang="en"><head><meta charset="utf-8">\n'
        f'<meta http-equiv="Content-Security-Policy" content="{POLICY}">\n'
        '<meta name="viewport" content="width=device-width, initial-scale=1">\n'
        f"<title>{text(title)}</title>\n<style>{STYLE}</style></head>\n"
        f"<body><main>\n{body}\n</main>\n<script>{SCRIPT}</script></body></html>\n"
    )


def text(value: object) -> str:
    """`value` as text that HTML cannot mistake for markup."""
    return html.escape(str(value), quote=True)


def section(heading: str, *parts: str) -> str:
    """A section, or nothing where all its parts are empty."""
    body = "\n".join(part for part in parts if part)
    return f"<section><h2>{text(heading)}</h2>\n{body}</section>" if body else ""


def grid(parts: Iterable[str], *, kind: str = "") -> str:
    """Cards side by side, one below the other on a phone; nothing where there are none."""
    body = "\n".join(parts)
    return f'<div class="grid {kind}">{body}</div>' if body else ""


def swatch(colour: str) -> str:
    """A small square in the CSS variable `colour`."""
    return f'<i class="swatch" style="background:var({colour})"></i>'


def table(
    head: Sequence[str], rows: Iterable[Sequence[str]], *, numeric: Iterable[int] = (), total: bool = False
) -> str:
    """A table; cells are HTML already, columns in `numeric` align right, `total` sets off the last row.

    Without a head it is a list of names and values.
    """
    right = set(numeric)
    rows = list(rows)

    def cells(tag: str, row: Sequence[str]) -> str:
        kinds = [' class="n"' if i in right else "" for i in range(len(row))]
        return "".join(f"<{tag}{kind}>{cell}</{tag}>" for kind, cell in zip(kinds, row, strict=True))

    lines = [f"<tr>{cells('th', [text(h) for h in head])}</tr>"] if head else []
    for i, row in enumerate(rows):
        kind = ' class="total"' if total and i == len(rows) - 1 else ""
        lines.append(f"<tr{kind}>{cells('td', row)}</tr>")
    kind = "scroll" if head else "scroll pairs"
    return f'<div class="{kind}"><table>{"".join(lines)}</table></div>'
