"""The guests of a captured machine: libvirt's XML beside its proc/ and sys/.

libvirt/capabilities.xml has the topology; libvirt/guests/UUID/ has live.xml, definition.xml (of a persistent guest) and
state.
"""

from collections.abc import Sequence
from itertools import count
from pathlib import Path
from typing import Protocol, cast, get_args

from lxml import etree

from pinner.host.captured import scrub
from pinner.host.captured.scrub import Alias
from pinner.host.kernel import files
from pinner.host.processes import qemu
from pinner.host.virt.guests import DomainDescription, read_guests
from pinner.model.errors import Invalid
from pinner.model.guest.guest import Guest, GuestState, InactiveGuest

FOLDER = Path("libvirt")
_CAPABILITIES = FOLDER / "capabilities.xml"
_GUESTS = FOLDER / "guests"


class DescribedGuests(Protocol):
    def descriptions(self) -> Sequence[DomainDescription]: ...

    def capabilities(self) -> str: ...


class CapturedGuests:
    def __init__(self, root: Path) -> None:
        self._root = root

    def guests(self, root: Path, *, memory: bool = True) -> tuple[Guest, ...]:
        """Raises Invalid for a damaged file."""
        domains = []
        for description in self.descriptions():
            try:
                domains.append(description.parsed())
            except (etree.XMLSyntaxError, ValueError, Invalid) as error:
                raise _damaged(root / _GUESTS / description.uuid, str(error)) from None
        return read_guests(root, domains, qemu.find(root, {domain.uuid for domain in domains}), memory=memory)

    def descriptions(self) -> tuple[DomainDescription, ...]:
        """Raises Invalid."""
        return tuple(_read(folder) for folder in sorted((self._root / _GUESTS).glob("*")))

    def inactive(self) -> tuple[InactiveGuest, ...]:
        return ()

    def capabilities(self) -> str:
        return _text(self._root / _CAPABILITIES)


def captured_guests(root: Path) -> CapturedGuests | None:
    """None where it was captured without libvirt."""
    return CapturedGuests(root) if (root / _CAPABILITIES).is_file() else None


def aliases(descriptions: Sequence[DomainDescription]) -> dict[str, Alias]:
    numbers = count(1)
    return {
        description.uuid: Alias(f"guest-{number}", f"00000000-0000-4000-8000-{number:012}")
        for description, number in zip(descriptions, numbers, strict=False)
    }


def as_files(description: DomainDescription, alias: Alias | None) -> dict[Path, bytes]:
    folder = _GUESTS / (alias.uuid if alias else description.uuid)
    written = {
        folder / "live.xml": scrub.reduced(description.xml, alias),
        folder / "state": description.state,
    }
    if description.definition is not None:
        written[folder / "definition.xml"] = scrub.reduced(description.definition, alias)
    return {path: f"{text}\n".encode() for path, text in written.items()}


def capabilities_file(xml: str) -> dict[Path, bytes]:
    return {_CAPABILITIES: f"{scrub.capabilities(xml)}\n".encode()}


def _read(folder: Path) -> DomainDescription:
    xml = _text(folder / "live.xml")
    state = _text(folder / "state")
    definition = folder / "definition.xml"
    if state not in get_args(GuestState):
        raise _damaged(folder / "state", f"{state!r} is none of {', '.join(get_args(GuestState))}")
    try:
        domain = etree.fromstring(xml, etree.XMLParser(resolve_entities=False, no_network=True, huge_tree=True))
    except etree.XMLSyntaxError as error:
        raise _damaged(folder / "live.xml", str(error)) from None
    return DomainDescription(
        uuid=domain.findtext("uuid", ""),
        name=domain.findtext("name", ""),
        state=cast("GuestState", state),
        xml=xml,
        definition=_text(definition) if definition.exists() else None,
    )


def _text(path: Path) -> str:
    text = files.text(path)
    if text is None:
        raise _damaged(path, "it cannot be read")
    return text


def _damaged(path: Path, why: str) -> Invalid:
    return Invalid("--root", str(path), f"a file that `pinner capture` wrote ({why})")
