"""The agent of a guest that does not run, with libvirt's own driver for tests, which keeps its guests in memory."""

import libvirt
import libvirt_qemu
import pytest

from pinner.host.virt.libvirt import Libvirt
from pinner.model.errors import Busy, Gone

URI = "test:///default"


@pytest.fixture
def domain(monkeypatch):
    # That driver has no agents. QEMU's driver answers about a guest that does not run as it answers here.
    monkeypatch.setattr(libvirt_qemu, "qemuAgentCommand", lambda domain, *_: domain.destroy())
    found = libvirt.open(URI).lookupByName("test")
    if not found.isActive():
        found.create()
    return found


def test_a_saved_guest_is_not_gone(domain):
    """It keeps the masks inside, and a rollback after its start restores them."""
    domain.managedSave()
    with pytest.raises(Busy, match="is it paused or saved"):
        Libvirt(URI).ask_guest_agent(domain.UUIDString(), "{}")
    domain.managedSaveRemove()
    with pytest.raises(Gone):
        Libvirt(URI).ask_guest_agent(domain.UUIDString(), "{}")


def test_a_guest_that_was_shut_off_is_gone(domain):
    domain.destroy()
    with pytest.raises(Gone):
        Libvirt(URI).ask_guest_agent(domain.UUIDString(), "{}")
