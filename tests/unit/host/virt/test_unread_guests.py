"""Guests that libvirt does not describe, or whose XML does not parse: they are left alone."""

from pathlib import Path

from support.roots import two_nodes

from pinner.host.virt.guests import DomainDescription
from pinner.wiring.captured import save_files

FOUND = DomainDescription("00000000-0000-4000-8000-000000000001", "web", "running", "<domain/>", None)


class Described:
    """A libvirt that describes one of two guests. It is replaced, because no fault of libvirtd does this."""

    def descriptions(self) -> list[DomainDescription]:
        return [FOUND, DomainDescription("u2", "db", "running", "", None).without_xml("libvirt: internal error")]

    def capabilities(self) -> str:
        return "<capabilities/>"


def test_a_cpu_list_that_does_not_parse_excludes_its_guest_alone() -> None:
    broken = DomainDescription("u", "db", "running", "<domain><vcpu cpuset='0-'>2</vcpu></domain>", "<domain/>")
    read = broken.parsed_or_left_alone()
    assert read.xml.excluded
    assert "vcpu cpuset" in read.unread
    assert not FOUND.parsed_or_left_alone().unread


def test_a_capture_leaves_an_unread_guest_out_and_names_it(tmp_path: Path) -> None:
    saved = save_files(two_nodes(tmp_path / "machine"), tmp_path / "saved", Described(), scrub=False)
    assert (saved.guests, saved.missing) == (1, "guest db is not saved: libvirt: internal error")
