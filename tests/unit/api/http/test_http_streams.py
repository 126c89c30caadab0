"""Answers that are sent in parts, and fail after the first one."""

import re
from contextlib import closing

import pytest
from support.server.access import make_control
from support.server.raw_http import exchange
from support.server.unix_http import served

from pinner.api.app import create_app
from pinner.model.errors import Busy, HostUnreachable
from pinner.service.remote.remote import RemoteService

FAILURES = [Busy("the trail", "old records were removed meanwhile", overdue=False), ValueError("a defect")]
EXPORT = b"GET /v1/audit/export HTTP/1.1\r\nHost: localhost\r\n\r\n"


@pytest.fixture(params=FAILURES, ids=lambda failure: type(failure).__name__)
def url(request, pinner, monkeypatch):
    def lines():
        yield "first line\n"
        raise request.param

    monkeypatch.setattr(pinner, "export_audit", lines)
    with served(create_app(pinner, control=make_control(), max_body_bytes=4096)) as running:
        yield running.url


def test_an_answer_that_fails_after_its_first_part_has_no_other_text_and_no_last_chunk(url, caplog):
    assert exchange(url, EXPORT).raw.partition(b"\r\n\r\n")[2] == b"b\r\nfirst line\n\r\n"
    (broken,) = (record for record in caplog.records if "broke off" in record.message)
    assert bool(broken.exc_info) is ("a defect" in caplog.text)


def test_a_client_learns_that_an_export_broke_off(url):
    with closing(RemoteService(url)) as remote:
        lines = remote.export_audit()
        assert next(lines) == "first line\n"
        with pytest.raises(HostUnreachable, match=re.escape(f"{url}: the answer broke off before its end")):
            next(lines)
