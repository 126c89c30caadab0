"""Writes the file that --output names."""

import os
from collections.abc import Iterable
from pathlib import Path
from typing import TYPE_CHECKING

from pinner.cli.context import reason
from pinner.model.errors import Invalid

if TYPE_CHECKING:
    from rich.console import RenderableType


def require_svg(file: Path | None) -> None:
    """Raise Invalid where a file is named, and its name does not end with .svg."""
    if file is not None and file.suffix.lower() != ".svg":
        raise Invalid("--output", os.fspath(file), "a name that ends with .svg")


def write_parts(file: Path | None, parts: "Iterable[RenderableType]", title: str) -> None:
    """Draw what a command prints, where a file is named. Raises like ``write_picture``."""
    if file is not None:
        # Imported here because only a picture needs it.
        from pinner.render.picture import picture

        write_picture(file, picture(parts, title))


def write_picture(file: Path, picture: bytes) -> None:
    """Write a picture. Raises Invalid where the file cannot be written."""
    try:
        file.write_bytes(picture)
    except OSError as error:
        raise Invalid("--output", str(file), f"a file that can be written ({reason(error)})") from None
