"""Tokens: made, found, listed and revoked, each with its audit record; the secret is stored nowhere."""

import threading
import time
from dataclasses import replace
from datetime import timedelta

import pytest
from sqlalchemy import text
from support.values import NOON

from pinner.model.errors import Invalid, NotFound
from pinner.model.page import PageRequest
from pinner.model.run.audit import OWN_ACTORS, Caller
from pinner.model.run.token import ROLES, parse_token, secret_hash
from pinner.store.audit.audit import Audit
from pinner.store.database.engine import reading
from pinner.store.tokens import Tokens

ANN = Caller("ann", "cli pts/0", "req-1")


@pytest.fixture
def tokens(engine):
    return Tokens(engine)


def test_a_token_is_found_by_its_id_and_matches_its_text(tokens):
    token, shown = tokens.create("deploy", "operator", "h1", NOON + timedelta(days=1), NOON, ANN)
    presented = parse_token(shown)
    assert tokens.find(presented.id) == token
    assert presented.hash == token.hash
    assert (token.name, token.role, token.host, token.created_by) == ("deploy", "operator", "h1", "ann")
    with pytest.raises(NotFound):
        tokens.find("0" * 12)


@pytest.mark.fault(44)
def test_the_secret_is_stored_nowhere(tokens, engine):
    _, shown = tokens.create("deploy", "operator", "", None, NOON, ANN)
    secret = shown.rpartition("_")[2]
    assert len(secret) * 4 == 256
    with reading(engine) as connection:
        for table in ("tokens", "audit"):
            rows = str(connection.execute(text(f"SELECT * FROM {table}")).all())
            assert secret not in rows
            assert secret_hash(secret) in rows or table == "audit"


def test_no_two_tokens_are_equal(tokens):
    made = [tokens.create("a", role, "", None, NOON, ANN) for role in ROLES for _ in range(5)]
    assert len({token.id for token, _ in made}) == len({shown for _, shown in made}) == 20
    assert {token.id for token in tokens.list()} == {token.id for token, _ in made}


@pytest.mark.fault(44)
def test_a_token_is_revoked_once(tokens):
    token, _ = tokens.create("a", "reader", "", None, NOON, ANN)
    later = NOON + timedelta(hours=1)
    revoked = tokens.revoke(token.id, later, ANN)
    assert revoked == replace(token, revoked_at=later) == tokens.find(token.id)
    assert tokens.revoke(token.id, later + timedelta(hours=1), ANN) == revoked
    with pytest.raises(NotFound):
        tokens.revoke("0" * 12, later, ANN)


def test_making_and_revoking_are_audited(tokens, engine):
    token, _ = tokens.create("deploy", "operator", "h1", NOON + timedelta(days=1), NOON, ANN)
    tokens.revoke(token.id, NOON, ANN)
    tokens.revoke(token.id, NOON, ANN)
    records = Audit(engine).list(None, None, None, PageRequest()).items
    summary = "operator deploy, host h1, until 2026-11-22T12:00:00+00:00"
    assert [(each.action, each.actor, each.host, each.subject, each.before, each.after) for each in records] == [
        ("token.revoke", "ann", "h1", token.id, summary, ""),
        ("token.create", "ann", "h1", token.id, "", summary),
    ]
    assert Audit(engine).verify().ok


@pytest.mark.parametrize(("hours", "state"), [(-1, "active"), (0, "expired"), (1, "expired")])
def test_a_token_expires(tokens, hours, state):
    token, _ = tokens.create("a", "reader", "", NOON, NOON, ANN)
    assert token.state(NOON + timedelta(hours=hours)) == state
    assert replace(token, revoked_at=NOON).state(NOON) == "revoked"
    assert replace(token, expires_at=None).state(NOON + timedelta(days=9999)) == "active"


@pytest.mark.fault(44)
@pytest.mark.parametrize(
    "name",
    [*sorted(OWN_ACTORS), "Policy", "", " ", "a b", "-x", "a\n", "x" * 65, "uid 7", "\u0430dmin", "p0licy", "policy."],
)
def test_a_wrong_name_is_refused(tokens, name):
    with pytest.raises(Invalid) as refused:
        tokens.create(name, "reader", "", None, NOON, ANN)
    assert (refused.value.details["field"], refused.value.details["value"]) == ("name", name)
    assert tokens.list() == ()


@pytest.mark.parametrize("host", ["a\nb", "x" * 256])
def test_a_wrong_host_is_refused(tokens, host):
    with pytest.raises(Invalid) as refused:
        tokens.create("a", "reader", host, None, NOON, ANN)
    assert refused.value.details["field"] == "host"


@pytest.mark.parametrize("shown", ["", "s3cret", "pinner_1_2", "pinner_" + "0" * 12 + "_" + "0" * 63, "\n"])
def test_a_text_that_is_no_token_is_not_shown(shown):
    with pytest.raises(Invalid) as refused:
        parse_token(shown)
    assert refused.value.details["value"] == "(not shown)"


def test_tokens_are_read_while_others_are_made(tokens):
    """Each request reads its token; the database must not make it wait for a writer."""
    token, _ = tokens.create("a", "reader", "", None, NOON, ANN)
    stop = threading.Event()

    def make():
        while not stop.is_set():
            tokens.create("b", "reader", "", None, NOON, ANN)

    writer = threading.Thread(target=make)
    writer.start()
    try:
        began = time.perf_counter()
        for _ in range(100):
            tokens.find(token.id)
        assert time.perf_counter() - began < 5
    finally:
        stop.set()
        writer.join()
