"""The sender of Nova's events: one server and one token for each host."""

from types import SimpleNamespace

import pytest
from support.fakes.in_memory_service import InMemoryService
from support.server.access import InMemoryTokens
from support.server.real_service import answering
from support.values import NOON, sample_snapshot

from pinner.model.errors import HostUnreachable, Invalid
from pinner.model.event import GuestEvent
from pinner.nova.delivery.sender import Sender

GUEST = sample_snapshot().guests[0].uuid


def leaving(host, destination=""):
    event = GuestEvent(GUEST, "leaving", "e", "nova", NOON, None)
    return SimpleNamespace(host=host, destination=destination, guest_event=event)


@pytest.fixture
def pinner():
    return InMemoryService()


@pytest.fixture
def tokens():
    return InMemoryTokens()


def test_each_host_has_a_token_of_its_own(tmp_path, pinner, tokens):
    (tmp_path / "h1").write_text(tokens.add("hook") + "\n")
    with answering(pinner, tokens) as url:
        sender = Sender(url, f"{tmp_path}/{{host}}")
        assert sender.send(leaving("h1")).known
        sender._server_of("h1").close()
        with pytest.raises(HostUnreachable, match=f"token_file: '{tmp_path}/h2' is not a readable file"):
            sender.send(leaving("h2"))


def test_the_role_hook_may_ask_for_the_cpus_of_the_destination(tmp_path, pinner, tokens):
    (tmp_path / "token").write_text(tokens.add("hook"))
    with answering(pinner, tokens) as url:
        sender = Sender(url, f"{tmp_path}/token")
        sender.send(leaving("h1", "h1"))
        sender._server_of("h1").close()
    (event,) = pinner.events
    assert event.cpus == sample_snapshot().topology.online


@pytest.mark.parametrize("host", ["../token", "/etc/hostname", "a/b"])
def test_a_hosts_name_selects_no_file_elsewhere(tmp_path, host):
    (tmp_path / "tokens").mkdir()
    (tmp_path / "token").write_text("s3cret")
    with pytest.raises(Invalid) as refused:
        Sender("http://127.0.0.1:1", f"{tmp_path}/tokens/{{host}}").send(leaving(host))
    assert refused.value.details["field"] == "host"


def test_a_missing_file_is_named_at_the_start(tmp_path):
    with pytest.raises(Invalid, match=r"\[nova_listener\] token_file"):
        Sender("http://127.0.0.1:1", f"{tmp_path}/none")


def test_no_token_is_for_whatever_host_a_notification_names(tmp_path):
    (tmp_path / "token").write_text("s3cret")
    with pytest.raises(Invalid) as refused:
        Sender("http://{host}:8077", f"{tmp_path}/token")
    assert refused.value.details == {
        "field": "[nova_listener] token_file",
        "value": f"{tmp_path}/token",
        "expected": "a file for each host, such as /etc/pinner/tokens/{host}, because server contains {host}",
    }
