"""Old records that are exported and removed leave a trail that verifies."""

import gzip
from datetime import timedelta

import pytest
from support.store.forgery import execute
from support.store.trail import message
from support.values import NOON

from pinner.service.audit.audit_export import verify_file
from pinner.service.upkeep.retention import Limits, cut_chain, export_audit

LATER = NOON + timedelta(days=3650)


@pytest.mark.fault(57)
def test_what_is_exported_leaves_the_centre_and_the_agent_and_verifies(used, tmp_path):
    (head,) = used.service.audit_anchor().heads
    limits = Limits(*[timedelta(days=1)] * 3, tmp_path / "audit")
    store = used.store.retention
    first = export_audit(store, limits, LATER, "h1", used.service.export_audit)
    assert verify_file(first, head.key, None).result == "intact"
    assert used.verify().result == "intact"
    used.apply()
    used.exchange()
    anchor = used.service.audit_anchor()
    second = export_audit(store, limits, LATER + timedelta(days=9), "h1", used.service.export_audit)
    found = verify_file(second, head.key, anchor)
    assert (found.result, found.findings) == ("intact", ())
    with gzip.open(second, "rt") as lines:
        kept = [line for line in lines if '"audit.export"' not in line]
    second.write_bytes(gzip.compress("".join(kept).encode()))
    assert {finding.kind.value for finding in verify_file(second, head.key, None).findings} & {"cut", "changed"}
    used.exchange()
    cut = cut_chain(used.agent.journal.chain, used.agent.trail, tmp_path, limits, LATER)
    assert cut.name.startswith("chain-1-")
    assert cut_chain(used.agent.journal.chain, used.agent.trail, tmp_path, limits, NOON) is None
    used.apply()
    used.exchange()
    assert used.verify().result == "intact"


@pytest.mark.fault(57)
def test_records_deleted_without_an_export_are_found(used):
    with used.stopped():
        execute(
            used.database,
            "UPDATE audit_chain SET purged_seq = 4, purged_hash = (SELECT hash FROM audit WHERE seq = 4)",
            "DELETE FROM audit WHERE seq <= 4",
        )
    assert "no record names the export" in message(used.verify(), "cut")
