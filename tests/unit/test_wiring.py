"""What wiring makes of pinner's own configuration."""

from collections.abc import Callable
from contextlib import ExitStack
from pathlib import Path
from typing import NoReturn

import pytest
from oslo_config import cfg
from support.hosts import cpus, guest, plain, snapshot
from support.machines import root_of, unpack

from pinner import wiring
from pinner.agent.socket.peers import CallerLeft, waits_for
from pinner.conf import register_rabbit
from pinner.host.inventory import SnapshotInputs
from pinner.host.kernel import tracefs
from pinner.host.settings.inside import guest_rps
from pinner.model.errors import Busy, Invalid
from pinner.model.guest.guest import Tap
from pinner.model.guest.nova import Listening
from pinner.model.plan.objective import weighted
from pinner.wiring import agent


@pytest.fixture
def configured(tmp_path: Path):
    def configured(text: str) -> list[Path]:
        file = tmp_path / "pinner.conf"
        file.write_text(text)
        return [file]

    return configured


def test_an_ignored_configuration_of_nova_is_not_read(configured) -> None:
    files = configured("[nova]\nignore_nova_conf = true\nnova_conf = /does/not/exist\n")
    assert wiring.nova_reader(wiring.configuration(files))() is None


def test_a_trace_ends_when_its_caller_disconnects(configured, tmp_path, monkeypatch) -> None:
    host = snapshot(plain(4), [guest(1, 2, cpus("0-3"))])

    def record(_root: object, _cpus: object, seconds: float, sleep: Callable[[float], None]) -> None:
        sleep(seconds)

    monkeypatch.setattr(agent, "take_snapshot", lambda *_, **__: host)
    monkeypatch.setattr(tracefs, "record", record)
    config = wiring.configuration(configured(f"[agent]\nstate_dir = {tmp_path}/state\n"))
    (tmp_path / "state/agent").mkdir(parents=True)
    with ExitStack() as undo:
        local = wiring.local_agent(config, (), undo)
        with waits_for(lambda: True), pytest.raises(CallerLeft):
            local.blame(host.guests[0].uuid, 2.0)


def test_a_snapshot_and_a_reading_share_the_time_of_slow_guests(configured, tmp_path, monkeypatch) -> None:
    host, readers = snapshot(plain(4), []), []
    monkeypatch.setattr(agent, "take_snapshot", lambda *_, inputs, **__: readers.append(inputs.ask_guests) or host)
    monkeypatch.setattr(agent, "take_reading", lambda *_, ask_guests, **__: readers.append(ask_guests))
    text = f"[agent]\nstate_dir = {tmp_path}/state\n[libvirt]\nguest_agents = true\n"
    (tmp_path / "state/agent").mkdir(parents=True)
    with ExitStack() as undo:
        wiring.local_agent(wiring.configuration(configured(text)), (), undo).reading(1.0)
    of_snapshot, of_reading = readers
    assert of_snapshot == of_reading is not None


def test_the_inventory_of_a_run_asks_only_the_guests_that_it_names(configured, tmp_path, monkeypatch) -> None:
    guests, asked = (
        [guest(number, 2, cpus("0-3"), taps=(Tap("tap1", "52:54:00:00:00:01", 0, 0, 0, 0),)) for number in (1, 2)],
        [],
    )

    def take(*_: object, inputs: SnapshotInputs, **__: object) -> None:
        inputs.ask_guests(guests, {"guest_rps": guest_rps.ROW.inside})

    def ask(_: object, uuid: str, _command: str) -> NoReturn:
        asked.append(uuid)
        raise Busy("guest", "its agent does not run", overdue=False)

    monkeypatch.setattr(agent, "take_snapshot", take)
    monkeypatch.setattr(agent.Libvirt, "ask_guest_agent", ask)
    text = f"[agent]\nstate_dir = {tmp_path}/state\n[libvirt]\nguest_agents = true\n"
    (tmp_path / "state/agent").mkdir(parents=True)
    with ExitStack() as undo:
        local = wiring.local_agent(wiring.configuration(configured(text)), (), undo)
        local._take_inventory(["guest_rps"], [guests[1].uuid])
    assert asked == [guests[1].uuid]


def test_the_named_files_of_nova_are_read(configured, tmp_path) -> None:
    (tmp_path / "nova.conf").write_text("[compute]\ncpu_dedicated_set = 4\n")
    read = wiring.nova_reader(wiring.configuration(configured(f"[nova]\nnova_conf = {tmp_path}/nova.conf\n")))
    found = read()
    assert found is not None
    assert found.dedicated == "4"


@pytest.mark.parametrize(
    ("text", "listening"),
    [
        ("", Listening()),
        ("[oslo_messaging_rabbit]\namqp_durable_queues = true\n", Listening(is_durable=True)),
        ("[oslo_messaging_rabbit]\nrabbit_quorum_queue = true\n", Listening(is_durable=True, is_quorum=True)),
    ],
)
def test_the_listeners_kind_of_queue_is_read(configured, text: str, listening: Listening) -> None:
    assert wiring.listening(configured(text)) == listening


def test_a_wrong_kind_of_queue_is_an_error_that_names_the_option(configured) -> None:
    with pytest.raises(Invalid, match=r"\[oslo_messaging_rabbit\] amqp_durable_queues.*maybe"):
        wiring.listening(configured("[oslo_messaging_rabbit]\namqp_durable_queues = maybe\n"))


def test_the_options_of_oslo_messaging_stay_as_the_library_has_registered_them(configured) -> None:
    theirs = cfg.BoolOpt("rabbit_quorum_queue", default=True, help="oslo.messaging's own")
    conf = cfg.ConfigOpts()
    conf.register_opt(theirs, group="oslo_messaging_rabbit")
    conf([], default_config_files=[str(configured("")[0])])
    assert register_rabbit(register_rabbit(conf)).oslo_messaging_rabbit.rabbit_quorum_queue is True


def test_a_snapshot_has_the_configured_weights(configured) -> None:
    config = wiring.configuration(configured("[objective]\nextra_l3 = 4\novercommit = 0\n"))
    taken = wiring.captured_agent(config, root_of("two-socket")).snapshot(0)
    assert taken.weights == weighted({"extra_l3": 4.0, "overcommit": 0.0})


def test_a_captured_machine_has_no_configuration_of_nova(configured, tmp_path) -> None:
    """Its files are not those of the capture, and this host's are of another machine."""
    root = unpack("two-socket", tmp_path)
    (root / "etc/nova").mkdir(parents=True, exist_ok=True)
    (root / "etc/nova/nova.conf").write_text("[compute]\ncpu_dedicated_set = 0-3\n")
    for text, dedicated in (("", ""), ("[nova]\ncpu_dedicated_set = 1\n", "1")):
        taken = wiring.captured_agent(wiring.configuration(configured(text)), root).snapshot(0)
        assert (taken.nova, str(taken.dedicated)) == (None, dedicated)


@pytest.mark.parametrize("value", ["-1", "nan", "inf", "2000000", "much"])
def test_a_wrong_weight_in_the_configuration_is_refused(configured, value: str) -> None:
    with pytest.raises(Invalid, match="extra_l3"):
        wiring.configuration(configured(f"[objective]\nextra_l3 = {value}\n"))


def test_a_weight_of_an_unknown_term_in_the_configuration_is_refused(configured) -> None:
    with pytest.raises(Invalid, match=r"\[objective\] has no option extra_l4"):
        wiring.configuration(configured("[objective]\nextra_l4 = 1\n"))
