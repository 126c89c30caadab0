"""The agent's trail: its key, its signed heads, the limits of its arguments, and the runs that it refuses."""

import stat
from contextlib import closing
from dataclasses import replace

import pytest
from cryptography.hazmat.primitives import serialization
from cryptography.hazmat.primitives.asymmetric.x25519 import X25519PrivateKey
from support.values import NOON, make_run

from pinner.agent.trail.signing import SigningKey, is_signed, pem, read_pem
from pinner.agent.trail.trail import MAX_REFUSALS, WINDOW_SECONDS, AgentTrailFile, RefusalLimit
from pinner.model.errors import HostBusy, Invalid, RunConflict, StoreUnavailable
from pinner.model.run.agent_audit import ChainHead
from pinner.store.journal.journal import StoredJournal

CENTRE = ChainHead(7, "ab" * 32)


@pytest.fixture
def journal(tmp_path):
    with closing(StoredJournal(tmp_path)) as journal:
        yield journal


@pytest.fixture
def key(tmp_path):
    return SigningKey(tmp_path / "signing.key")


@pytest.fixture
def trail(journal, key):
    return AgentTrailFile("h1", journal.chain, key, lambda: NOON)


def test_the_key_is_made_once_and_only_its_owner_may_read_it(tmp_path):
    first, second = SigningKey(tmp_path / "signing.key"), SigningKey(tmp_path / "signing.key")
    assert first.public == second.public
    assert stat.S_IMODE((tmp_path / "signing.key").stat().st_mode) == 0o600
    assert [file.name for file in tmp_path.iterdir()] == ["signing.key"]


@pytest.mark.parametrize("content", [b"", b"no key"])
def test_a_file_that_is_no_key(tmp_path, content):
    (tmp_path / "signing.key").write_bytes(content)
    with pytest.raises(StoreUnavailable, match=r"signing\.key"):
        SigningKey(tmp_path / "signing.key")


def test_a_key_of_another_kind(tmp_path):
    form = (serialization.Encoding.PEM, serialization.PrivateFormat.PKCS8, serialization.NoEncryption())
    (tmp_path / "signing.key").write_bytes(X25519PrivateKey.generate().private_bytes(*form))
    with pytest.raises(StoreUnavailable, match="Ed25519"):
        SigningKey(tmp_path / "signing.key")


def test_the_public_key_as_pem(key):
    assert read_pem(pem(key.public).encode(), "--public-key") == key.public
    with pytest.raises(Invalid, match="--public-key"):
        read_pem(b"x", "--public-key")
    with pytest.raises(Invalid):
        pem("x")


def test_a_head_is_signed_with_every_field(trail):
    head = trail.head(CENTRE)
    assert (head.host, head.seq, head.centre) == ("h1", 2, CENTRE)
    assert is_signed(head)
    for name, other in {"host": "h2", "seq": 3, "hash": "0", "centre_seq": 8, "centre_hash": "0", "at": ""}.items():
        assert not is_signed(replace(head, **{name: other}))
    for name in ("key", "signature"):
        assert not is_signed(replace(head, **{name: "x"}))


def test_a_head_without_the_centre_adds_no_record(trail):
    assert trail.head(None).seq == trail.head(ChainHead(0, "")).seq == 1
    assert trail.head(CENTRE).seq == trail.head(CENTRE).seq == trail.head(None).seq == 2


@pytest.mark.parametrize(
    "centre", [ChainHead(-1, "ab" * 32), ChainHead(2**53, "ab" * 32), ChainHead(1, "x"), ChainHead(1, "")]
)
def test_a_wrong_head_of_the_centre(trail, centre):
    with pytest.raises(Invalid, match="centre"):
        trail.head(centre)
    assert trail.head(None).seq == 1


def test_the_largest_number_of_a_head_is_signed(trail):
    """A larger one was recorded before the signature refused it, and then no head could be signed any more."""
    assert is_signed(trail.head(ChainHead(2**53 - 1, "ab" * 32)))
    assert trail.head(None).centre_seq == 2**53 - 1


@pytest.mark.parametrize(("after", "limit"), [(0, 0), (0, 1001), (-1, 5), (2**53, 5)])
def test_wrong_bounds(trail, after, limit):
    with pytest.raises(Invalid):
        trail.records(after, limit)


def test_a_refused_run_is_recorded_unless_it_began(trail, journal):
    for before, after in ((False, False), (False, True)):
        known = iter((before, after))
        with pytest.raises(HostBusy), trail.refusals(make_run(), lambda _, known=known: next(known)):
            raise HostBusy("h1", "run-0")
    assert [(record.action, record.result) for record in trail.records(1, 10)] == [("run.apply", "refused: host_busy")]


@pytest.mark.fault(41)
def test_a_flood_of_refused_runs_fills_neither_the_trail_nor_the_log(journal, key, caplog):
    seconds = [1000.0]
    trail = AgentTrailFile("h1", journal.chain, key, lambda: NOON, RefusalLimit(lambda: seconds[0]))
    forged = make_run("x\nroot logged in " + "x" * 1_000_000, actor="a\x1b[2J" + "a" * 1_000_000)
    for _ in range(100):
        refuse(trail, forged)
    assert len(trail.records(1, 1000)) == caplog.text.count("refused run") == MAX_REFUSALS
    assert len(caplog.text) < 1000 * MAX_REFUSALS
    assert "\x1b" not in caplog.text
    assert "\nroot" not in caplog.text
    seconds[0] += WINDOW_SECONDS
    trail.head(None)
    assert f"refused {100 - MAX_REFUSALS} more runs" in caplog.text
    refuse(trail, make_run())
    assert trail.records(1, 1000)[-1].run == "run-1"


def refuse(trail, run):
    with pytest.raises(Invalid), trail.refusals(run, lambda _: False):
        raise Invalid("run id", "...", "an id")


def test_a_run_with_the_id_of_an_earlier_one_is_recorded(trail):
    with pytest.raises(RunConflict), trail.refusals(make_run(), lambda _: True):
        raise RunConflict("run-1", "applied", "x")
    assert [record.result for record in trail.records(1, 10)] == ["refused: run_conflict"]


def test_another_key_is_recorded(trail, journal, tmp_path):
    other = SigningKey(tmp_path / "other.key")
    AgentTrailFile("h1", journal.chain, other, lambda: NOON)
    AgentTrailFile("h1", journal.chain, other, lambda: NOON)
    assert [record.action for record in trail.records(0, 10)] == ["key.set", "key.set"]
    assert trail.records(1, 10)[0].after == other.public
