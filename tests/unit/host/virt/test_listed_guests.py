"""Guests that are read one by one: an error of one guest is a part of its description."""

import threading

import pytest
from support import roots

from pinner.host.processes import qemu
from pinner.host.virt import libvirt
from pinner.host.virt.guests import DomainDescription
from pinner.model.errors import ApplyFailed, Busy, Gone, HostUnreachable

UUIDS = [f"6a5b7a0e-0000-4000-8000-00000000000{number}" for number in range(5)]
ERRORS = {
    UUIDS[1]: Busy("guest b", "no answer", overdue=True),
    UUIDS[2]: ApplyFailed("guest c", "libvirt: internal error"),
    UUIDS[3]: Gone("guest d"),
}


def describe(uuid: str, name: str) -> DomainDescription:
    if uuid in ERRORS:
        raise ERRORS[uuid]
    return DomainDescription(uuid, name, "running", "<domain/>", None)


def test_each_guest_has_a_description_and_those_that_libvirt_lacks_have_none():
    found = libvirt.described(dict(zip(UUIDS, "abcde", strict=True)), describe)
    assert [(each.name, each.state, each.unread) for each in found] == [
        ("a", "running", ""),
        ("b", "unknown", libvirt.UNANSWERED),
        ("c", "unknown", "guest c: libvirt: internal error"),
        ("e", "running", ""),
    ]


def test_an_error_of_libvirt_itself_is_raised():
    def unreachable(_uuid: str, _name: str) -> DomainDescription:
        raise HostUnreachable("h1", "libvirt does not answer")

    with pytest.raises(HostUnreachable):
        libvirt.described({UUIDS[0]: "a"}, unreachable)


def test_some_guests_that_do_not_answer_are_waited_for_at_the_same_time():
    all_five = threading.Barrier(len(UUIDS))

    def slow(uuid: str, name: str) -> DomainDescription:
        all_five.wait(60)  # it fails where a guest is asked after another one
        return describe(uuid, name)

    assert len(libvirt.described(dict(zip(UUIDS, "abcde", strict=True)), slow)) == 4


def test_names_are_read_from_the_command_lines(tmp_path):
    words = {
        10: ("-name", "guest=web,debug-threads=on", "-uuid", UUIDS[0]),
        11: ("-name", "guest=a,,b=c,debug-threads=on", "-uuid", UUIDS[1]),
        12: ("-uuid", UUIDS[2]),
        13: ("-name", "guest=other", "-uuid", "no UUID"),
        14: ("-name",),
    }
    for pid, command in words.items():
        text = b"".join(word.encode() + b"\0" for word in ("qemu", *command))
        roots.process(tmp_path, pid, name=b"qemu-system-x86", command=text, started=50)
    assert qemu.named(tmp_path) == {UUIDS[0]: "web", UUIDS[1]: "a,b=c", UUIDS[2]: UUIDS[2]}
