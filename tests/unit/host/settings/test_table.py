"""The kinds with a state find their modules, and get no state of another kind."""

from dataclasses import replace

import pytest
from support.hosts import cpus
from support.made_up.setting_cases import CASES

from pinner.host.settings import table as host_table
from pinner.host.settings.row import Facts
from pinner.model import kinds
from pinner.model.change import Target
from pinner.model.errors import Invalid
from pinner.model.kinds import KINDS, SETTINGS, WITH_STATE
from pinner.model.snapshot import Snapshot
from pinner.model.states import Governor, PartitionState
from pinner.planning.settings import table as planning_table

STATES = (Governor("performance"), PartitionState("member", cpus("")))


@pytest.mark.parametrize("kind", SETTINGS)
def test_a_state_of_another_kind_is_refused_before_anything_is_written(tmp_path, kind):
    for state in STATES:
        if not isinstance(state, KINDS[kind].state):
            with pytest.raises(Invalid, match=f"a state of the kind {kind}"):
                host_table.set_state(tmp_path, CASES[kind].target, state)


@pytest.mark.parametrize("kind", [kind for kind in KINDS if kind not in WITH_STATE])
def test_a_target_without_a_state_has_none(tmp_path, kind):
    target = Target(kind, "1", 1, "it")
    for act in (host_table.state_of, lambda *where: host_table.set_state(*where, cpus("1"))):
        with pytest.raises(Invalid, match="a target that has a state"):
            act(tmp_path, target)


@pytest.mark.parametrize("rows", [host_table, planning_table], ids=["host", "planning"])
def test_a_kind_without_a_module_or_a_row_in_it_is_an_error(monkeypatch, rows):
    monkeypatch.setitem(KINDS, "ring", replace(KINDS["ring"], remedy="fans"))
    with pytest.raises(ImportError, match="fans"):
        rows._row("ring")
    monkeypatch.setitem(KINDS, "ring", replace(KINDS["ring"], remedy="row"))
    with pytest.raises(TypeError, match=r"settings/row.py needs a ROW"):
        rows._row("ring")


def test_a_kind_that_the_table_lacks_is_an_error(monkeypatch):
    monkeypatch.setattr(kinds, "_ROWS", kinds._ROWS[1:])
    with pytest.raises(TypeError, match="the table of kinds"):
        kinds._require_complete()


def test_each_setting_is_read_into_the_field_of_its_name(tmp_path):
    assert set(host_table.read(Facts(tmp_path), SETTINGS)) == {KINDS[kind].module for kind in SETTINGS}
    assert set(host_table.read(Facts(tmp_path), ["ring"])) == {"rings"}
    assert {KINDS[kind].module for kind in SETTINGS} <= set(Snapshot.__dataclass_fields__)
