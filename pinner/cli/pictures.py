"""Writes the file that --output names."""

from pathlib import Path

from pinner.cli.context import reason
from pinner.model.errors import Invalid


def write_picture(file: Path, picture: bytes) -> None:
    """Write a picture. Raises Invalid where the file cannot be written."""
    try:
        file.write_bytes(picture)
    except OSError as error:
        raise Invalid("--output", str(file), f"a file that can be written ({reason(error)})") from None
