"""RemoteService over a Unix socket."""

import gc
import os
import pwd
import subprocess
import sys
from contextlib import closing

import pytest
from support.fakes.in_memory_service import InMemoryService
from support.server.access import make_control
from support.server.unix_http import served

from pinner.api.app import create_app
from pinner.model.errors import HostUnreachable, Invalid, NotPermitted
from pinner.model.plan.request import Request
from pinner.model.run.audit import Caller
from pinner.model.run.journal import ApplyOptions
from pinner.service.remote.remote import RemoteService

CALLER = Caller("somebody", "else", "req-none")
AS_NOBODY = """
import os, sys
from pinner.service.remote.remote import RemoteService
remote = RemoteService(sys.argv[1])
os.setgroups([]); os.setgid(65534); os.setuid(65534)
remote.hosts()
"""


@pytest.fixture
def pinner():
    return InMemoryService()


@pytest.fixture
def url(pinner):
    with served(create_app(pinner, control=make_control(), max_body_bytes=65536)) as running:
        yield running.url


def test_it_answers_and_follows_runs(url, pinner):
    with closing(RemoteService(url)) as remote:
        assert remote.hosts() == ("h1",)
        run = remote.apply(remote.plan("h1", Request(), None, None, CALLER).id, ApplyOptions(), CALLER)
        assert [progress.entry is None for progress in remote.follow(run.id)][-1] is True
    assert pinner.records[-1].actor == pwd.getpwuid(os.geteuid()).pw_name


@pytest.mark.needs("root")
@pytest.mark.parametrize("actor", ["ann", "Ann Ä. %41\\x"])
def test_root_names_the_person_who_called_sudo(url, pinner, actor):
    with closing(RemoteService(url, actor=actor)) as remote:
        remote.plan("h1", Request(), None, None, CALLER)
    assert pinner.records[-1].actor == actor


def test_a_name_is_never_sent_over_tcp():
    with closing(RemoteService("http://127.0.0.1:9", actor="ann")) as remote:
        assert "X-Pinner-Actor" not in remote._rest._http.headers


# httpcore leaves the socket of a failed connection to the garbage collector.
@pytest.mark.filterwarnings("ignore::pytest.PytestUnraisableExceptionWarning")
def test_a_socket_without_a_server(tmp_path):
    with (
        closing(RemoteService(f"unix:{tmp_path}/none")) as remote,
        pytest.raises(HostUnreachable, match="pinner serve"),
    ):
        remote.hosts()
    gc.collect()  # now, not in a later test, which does not expect the warning


@pytest.mark.parametrize("url", ["unix:", "unix:api.sock", "unix:./api.sock"])
def test_a_path_that_is_not_absolute_is_refused(url):
    with pytest.raises(Invalid, match="absolute path"):
        RemoteService(url)


@pytest.mark.fault(43)
@pytest.mark.needs("root")
def test_a_user_who_may_not_connect_is_told_so(url):
    asked = subprocess.run([sys.executable, "-c", AS_NOBODY, url], capture_output=True, text=True, check=False)
    assert NotPermitted.__name__ in asked.stderr
    assert "user nobody may not connect" in asked.stderr
