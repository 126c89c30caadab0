"""The counters and settings of a captured machine."""

import os
from dataclasses import replace
from pathlib import Path

import pytest
from support.hosts import cpus, snapshot
from support.made_up.readings import Seen, counted, host, irq, nic, placed, reading

from pinner.host.reading import captured
from pinner.model.errors import Invalid
from pinner.model.machine.interrupts import Balancer
from pinner.model.reading import HostDetails, HostSample, SavedReading, Storage, Throttled, UdpSocket
from pinner.model.settings.cpu_weights import SLICE

BALANCER = Balancer(812, "--secret", cpus(""), 7, banned_now=cpus("4-7"))
CARDS = (nic("ens1", index=2, coalescing=(0, 1, True)), nic("tap-secret", "", index=3))


def seen(**more):
    """A reading of a host with a card and a tap."""
    first = Seen(irqs=(irq(40, "5", {5: 10}),), nics=CARDS)
    last = replace(first, nics=(counted(CARDS[0], rx_packets=180_000), CARDS[1]))
    made = reading(first, last, [placed()], irqbalance=(BALANCER,), cpu_weights={SLICE: 100}, **more)
    irqs = replace(made.snapshot.irqs, balancers=(BALANCER,))
    return replace(made, snapshot=replace(made.snapshot, irqs=irqs))


def write(root: Path, saved: SavedReading) -> None:
    for name, data in captured.as_file(saved).items():
        (root / name).write_bytes(data)


def test_a_captured_machine_keeps_both_samples_and_the_details(tmp_path):
    write(tmp_path, captured.saved(seen()))
    found = captured.captured_reading(tmp_path, snapshot(host(), [placed()]))
    assert (found.samples, found.seconds, found.details) == (seen().samples, 2.0, seen().details)


def test_a_captured_machine_keeps_its_settings(tmp_path):
    write(tmp_path, captured.saved(seen()))
    found = captured.with_saved_settings(tmp_path, replace(snapshot(host(), [placed()]), rps=(), cpu_weights={}))
    assert found == replace(seen().snapshot, taken_at=found.taken_at)
    assert found.coalescing[0].rate == 90_000.0


def test_a_machine_captured_without_samples_has_one_and_no_settings(tmp_path):
    taken = snapshot(host(), irqbalance=(BALANCER,))
    found = captured.captured_reading(tmp_path, taken)
    assert (len(found.samples), found.seconds, found.before) == (1, 0.0, None)
    assert captured.with_saved_settings(tmp_path, taken) == replace(taken, irqbalance=None)


def test_a_capture_of_a_build_before_the_settings_keeps_its_counters(tmp_path):
    text = """{"samples": [{"irqs": [{"number": 24, "name": "ens1-0", "device": "0000:3b:00.0", "cpus": "0-7",
        "effective": "3", "counts": {"3": 5}, "managed": null}],
        "nics": [{"name": "ens1", "device": "0000:3b:00.0", "index": 2,
            "statistics": {"rx_packets": 9}, "rings": null, "refused": {}}],
        "counters": {"pswpin": 4}, "settings": {}, "balancers": []}], "seconds": 0.0}"""
    (tmp_path / captured.FILE).write_text(text)
    (sample,) = captured.captured_reading(tmp_path, snapshot(host())).samples
    assert [(each.number, each.total) for each in sample.irqs] == [(24, 5)]
    assert [(each.key, each.statistics) for each in sample.nics] == [(2, {"rx_packets": 9})]
    assert sample.counters == {"pswpin": 4}
    assert captured.with_saved_settings(tmp_path, snapshot(host())).rings is None


def test_samples_that_were_damaged_are_refused(tmp_path):
    (tmp_path / captured.FILE).write_text('{"samples": 7}')
    with pytest.raises(Invalid, match=r"counters\.json"):
        captured.captured_reading(tmp_path, snapshot(host()))


def test_samples_that_are_a_pipe_are_refused(tmp_path):
    os.mkfifo(tmp_path / captured.FILE)
    with pytest.raises(Invalid, match=r"counters\.json"):
        captured.read_file(tmp_path)


@pytest.mark.parametrize(
    ("seconds", "wanted"),
    [("0", "a number of seconds above 0"), ("-1", "a number of seconds above 0"), ("1e400", "a finite number")],
)
def test_two_samples_are_some_time_apart(tmp_path, seconds, wanted):
    ((name, data),) = captured.as_file(captured.saved(seen())).items()
    (tmp_path / name).write_text(data.decode().replace('"seconds":2.0', f'"seconds":{seconds}'))
    with pytest.raises(Invalid, match=rf"counters\.json.*{wanted}"):
        captured.captured_reading(tmp_path, snapshot(host()))


def test_a_scrubbed_reading_names_no_tap_no_address_and_no_argument():
    sample = HostSample(nics=seen().now.nics, sockets=(UdpSocket("10.1.2.3:53", 1, 0, 5, 0),), unread={"a": "secret"})
    sample = replace(sample, throttled={"secret": Throttled(None, 1, None)}, cgroups={5: "secret"})
    details = HostDetails(
        nics=seen().details.nics,
        storage=(Storage("/secret", 1, 1),),
        weights={"machine.slice/secret": 5},
        unread={"a": "secret"},
    )
    saved = captured.saved(replace(seen(), samples=(sample,), details=details))
    text = captured.as_file(captured.scrubbed(saved))[captured.FILE]
    assert b"secret" in captured.as_file(saved)[captured.FILE]
    assert b"ens1" in text
    assert b"secret" not in text
    assert b"10.1.2.3" not in text
