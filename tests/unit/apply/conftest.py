import pytest
from support.fakes.in_memory_host import InMemoryHost, daemon, emulator, vcpu, vhost

from pinner.store.journal.journal import StoredJournal


@pytest.fixture
def journal(tmp_path):
    journal = StoredJournal(tmp_path)
    yield journal
    journal.close()


@pytest.fixture
def host():
    host = InMemoryHost()
    host.add(emulator(), "0-7", "0-7", "0-3")
    host.add(vcpu(0), "0-7")
    host.add(vcpu(1), "0-7")
    host.add(vhost(400), "0-7")
    host.add(daemon(500), "0-7", "0-7", "2-5")
    return host
