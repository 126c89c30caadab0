"""The configuration files of nova-compute in the order of oslo.config (ConfigOpts._parse_config_files).

The default files come first, unless the command line names a file; then the default folders, unless it names a folder;
then those of the command line. A later file overrides an earlier one. Default places: oslo_config.cfg.find_config_files
and find_config_dirs.
"""

import argparse
import posixpath
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Literal, NoReturn

from pinner.host.nova.nova_process import ProcessRoot, Started, home_of
from pinner.model.errors import Invalid

PROJECT = "nova"
MAX_FILES = 200
MAX_WORDS = 1000
"""argparse takes minutes for tens of thousands."""
MAX_BYTES = 4 << 20
"""The bytes of all files. A nova.conf with all comments has 0.5 MiB."""
_CLOCK_SECONDS = 1.0
"""The accuracy of a process's start."""
Kind = Literal["file", "folder"]


@dataclass(frozen=True, slots=True)
class ConfigFiles:
    contents: tuple[tuple[str, bytes], ...] = ()
    """Name and content, in the order of reading."""
    missing: tuple[str, ...] = ()
    changed: tuple[str, ...] = ()
    """Files newer than the process, which has read them at its start only."""

    @property
    def names(self) -> tuple[str, ...]:
        return tuple(name for name, _ in self.contents)


def collect(started: Started, root: ProcessRoot) -> ConfigFiles:
    """Raises Invalid for a missing folder of the command line, a command line that does not parse, and a file that is
    not regular."""
    contents: list[tuple[str, bytes]] = []
    missing: list[str] = []
    changed: list[str] = []
    length = 0
    for count, name in enumerate(_files(started, root)):
        if count >= MAX_FILES:
            raise Invalid("nova.conf", name, f"one of at most {MAX_FILES} files")
        try:
            contents.append((name, root.read(name)))
            length += len(contents[-1][1])
            if started.at is not None and root.stat(name).st_mtime > started.at + _CLOCK_SECONDS:
                changed.append(name)
        except FileNotFoundError:
            missing.append(name)
        except OSError as error:
            raise Invalid("nova.conf", name, f"a file that can be read ({error.strerror})") from None
        if length > MAX_BYTES:
            raise Invalid("nova.conf", name, f"the last of files with {MAX_BYTES} bytes at most in all")
    return ConfigFiles(tuple(contents), tuple(missing), tuple(changed))


def find(started: Started, root: ProcessRoot, extension: str = ".conf") -> Iterator[str]:
    for name in (PROJECT, started.program) if started.has_default_places else ():
        places = (_absolute(posixpath.join(folder, name + extension), started) for folder in _folders(started))
        yield from [place for place in places if root.exists(place)][:1]


def _files(started: Started, root: ProcessRoot) -> Iterator[str]:
    if len(started.arguments) > MAX_WORDS:
        raise Invalid("nova.conf", f"{len(started.arguments)} words", f"a command line of at most {MAX_WORDS} words")
    named = _named(started.arguments)
    if not _is_given(started.arguments, "--config-file"):
        yield from find(started, root)
    if not _is_given(started.arguments, "--config-dir"):
        for folder in find(started, root, ".conf.d"):
            yield from _in_folder(folder, root)
    for kind, path in named:
        place = _absolute(_expanded(path, started, root), started)
        if kind == "file":
            yield place
        elif not path or not root.exists(place):
            raise Invalid(
                "nova.conf", path and place, "a folder that exists: the command line of nova-compute names it"
            )
        else:
            yield from _in_folder(place, root)


def _in_folder(folder: str, root: ProcessRoot) -> Iterator[str]:
    """The files as glob(3) finds them. Raises Invalid for a pattern."""
    if set(folder) & set("*?["):
        raise Invalid("nova.conf", folder, "a folder without *, ? and [ in its path: Nova takes them for a pattern")
    try:
        names = root.names(folder)
    except OSError:
        return
    for name in sorted(names):
        if name.endswith(".conf") and not name.startswith("."):
            yield posixpath.join(folder, name)


def _folders(started: Started) -> Iterator[str]:
    if started.home:
        yield from (posixpath.join(started.home, f".{PROJECT}"), started.home)
    yield from (f"/etc/{PROJECT}", "/etc")
    variables = dict(started.environment)
    yield from (
        posixpath.join(variables[name], "etc", PROJECT) for name in ("SNAP_COMMON", "SNAP") if variables.get(name)
    )


class _Named(argparse.Action):
    def __call__(
        self, _parser: object, namespace: argparse.Namespace, value: object, _option: str | None = None
    ) -> None:
        namespace.places.append((self.dest, value))


class _Parser(argparse.ArgumentParser):
    """Raises each error instead of ending the process."""

    def error(self, message: str) -> NoReturn:
        raise argparse.ArgumentError(None, message)


def _named(arguments: tuple[str, ...]) -> list[tuple[Kind, str]]:
    """argparse accepts shortened options, as oslo.config does."""
    parser = _Parser(add_help=False, exit_on_error=False)
    parser.add_argument("--config-file", dest="file", action=_Named)
    parser.add_argument("--config-dir", dest="folder", action=_Named)
    try:
        parsed, _ = parser.parse_known_args(arguments, argparse.Namespace(places=[]))
    except argparse.ArgumentError as error:
        raise Invalid("nova.conf", " ".join(arguments), f"a command line that nova-compute accepts ({error})") from None
    places: list[tuple[Kind, str]] = parsed.places
    return places


def _is_given(arguments: tuple[str, ...], option: str) -> bool:
    """Unlike argparse, oslo.config finds it only by its full name here."""
    return any(argument == option or argument.startswith(f"{option}=") for argument in arguments)


def _expanded(path: str, started: Started, root: ProcessRoot) -> str:
    """As os.path.expanduser."""
    if not path.startswith("~"):
        return path
    name, slash, rest = path[1:].partition("/")
    home = home_of(name, root) if name else started.home
    return f"{home}{slash}{rest}" if home or not name else path


def _absolute(path: str, started: Started) -> str:
    return posixpath.normpath(posixpath.join(started.folder, path))
