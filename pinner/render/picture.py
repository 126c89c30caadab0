"""What a command prints, as a picture."""

import io
from collections.abc import Iterable

from rich.console import Console, RenderableType
from rich.terminal_theme import DEFAULT_TERMINAL_THEME

from pinner.render import visible

_COLUMNS = 120
_SVG = """\
<svg viewBox="0 0 {width} {height}" xmlns="http://www.w3.org/2000/svg">
<style>
.{unique_id}-matrix {{ font-family: monospace; font-size: {char_height}px; line-height: {line_height}px }}
.{unique_id}-title {{ font-family: sans-serif; font-size: 18px; font-weight: bold }}
{styles}
</style>
<defs>{lines}</defs>
{chrome}
<g transform="translate({terminal_x}, {terminal_y})">
{backgrounds}
<g class="{unique_id}-matrix">
{matrix}
</g>
</g>
</svg>
"""
"""Without the fonts of rich's own frame: a viewer would load them from another server."""


def picture(parts: Iterable[RenderableType], title: str) -> bytes:
    """SVG on a white ground."""
    console = Console(
        file=io.StringIO(), record=True, width=_COLUMNS, markup=False, highlight=False, emoji=False, color_system=None
    )
    for part in parts:
        console.print(part)
    return console.export_svg(title=visible(title), theme=DEFAULT_TERMINAL_THEME, code_format=_SVG).encode()
