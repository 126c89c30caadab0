"""Energy preferences and resume latencies: of real machines where they have them, else in a made-up sysfs."""

import errno
import os
import shutil
from pathlib import Path

import pytest
from support.machines import NAMES, root_of
from support.values import cpus

from pinner.host.captured.capture import capture
from pinner.host.hardware.sysfs import read_topology
from pinner.host.settings import table
from pinner.host.settings.power import epp, governors, resume_latency
from pinner.model.change import Target
from pinner.model.errors import ApplyFailed, Gone, Invalid
from pinner.model.settings.power import PERFORMANCE, SHALLOW, EnergyDomain, WakeLimit
from pinner.model.states import Word

HYBRID, ARM, XEON = "20em64t-hybrid-1p6c2t+2ca4co1t", "2arm-2c", "40intel64-2g2n4c+pcilocality"
OFFERED = ("default", "performance", "balance_performance", "balance_power", "power")
CPU = "sys/devices/system/cpu"


def needs(name: str):
    return pytest.mark.skipif(name not in NAMES, reason="PINNER_MACHINES names no folder with this machine")


def governors_of(root: Path) -> dict[int, str]:
    return {cpu.id: cpu.governor for cpu in read_topology(root).cpus if cpu.governor}


def write(root: Path, files: dict[str, str]) -> Path:
    for name, text in files.items():
        (root / name).parent.mkdir(parents=True, exist_ok=True)
        (root / name).write_text(f"{text}\n")
    return root


@pytest.fixture
def root(tmp_path):
    """CPUs 2-3 have a preference, 5 may sleep deeply, 6 may not sleep, 7 has one deep state that is disabled."""
    policy = f"{CPU}/cpufreq/policy2"
    made = {
        f"{policy}/related_cpus": "2 3",
        f"{policy}/scaling_governor": "powersave",
        f"{policy}/energy_performance_preference": "128",
        f"{policy}/energy_performance_available_preferences": "default performance ",
        f"{CPU}/present": "2-7",
    }
    for cpu, limit, disable in ((5, "0", "0"), (6, "n/a", "0"), (7, "100", "1")):
        made[f"{CPU}/cpu{cpu}/power/pm_qos_resume_latency_us"] = limit
        for state, latency, is_off in ((0, "0", "0"), (1, "2", "0"), (3, "133", disable)):
            made[f"{CPU}/cpu{cpu}/cpuidle/state{state}/latency"] = latency
            made[f"{CPU}/cpu{cpu}/cpuidle/state{state}/disable"] = is_off
    write(tmp_path / "root", made)
    (tmp_path / "root" / CPU / "cpu2").mkdir()
    (tmp_path / "root" / CPU / "cpu2/cpufreq").symlink_to("../cpufreq/policy2")
    return tmp_path / "root"


DOMAIN = EnergyDomain(2, cpus("2-3"), Word("128"), ("default", "performance"), "powersave")
LIMITS = (WakeLimit(5, Word("0"), 133), WakeLimit(6, Word("n/a"), 133), WakeLimit(7, Word("100"), 2))
FILES = {
    DOMAIN.target: f"{CPU}/cpufreq/policy2/energy_performance_preference",
    LIMITS[0].target: f"{CPU}/cpu5/power/pm_qos_resume_latency_us",
}
STATES = {DOMAIN.target: PERFORMANCE, LIMITS[0].target: SHALLOW}
each_target = pytest.mark.parametrize("target", FILES, ids=str)


def test_preferences_and_limits_are_read_and_captured(root, tmp_path):
    capture(root, tmp_path / "captured", scrub=True)
    for machine in (root, tmp_path / "captured"):
        assert epp.read_preferences(machine, governors_of(machine)) == (DOMAIN,)
        assert resume_latency.read_limits(machine) == LIMITS
    assert [limit.is_shallow for limit in LIMITS] == [False, True, False]
    assert epp.read_preferences(tmp_path, {}) == resume_latency.read_limits(tmp_path) == ()


@needs(HYBRID)
def test_a_real_hybrid_machine_has_a_preference_for_each_cpu(tmp_path):
    machine = root_of(HYBRID)
    assert epp.read_preferences(machine, governors_of(machine)) == tuple(
        EnergyDomain(cpu, cpus(str(cpu)), Word("balance_performance"), OFFERED, "powersave") for cpu in range(20)
    )
    shutil.copytree(machine / CPU / "cpufreq", tmp_path / CPU / "cpufreq")
    target = EnergyDomain(12, cpus("12"), PERFORMANCE).target
    for state in (PERFORMANCE, Word("balance_performance")):
        table.set_state(tmp_path, target, state)
        assert table.state_of(tmp_path, target) == state


@pytest.mark.parametrize(
    ("name", "slowest"), [pytest.param(ARM, 8800, marks=needs(ARM)), pytest.param(XEON, 200, marks=needs(XEON))]
)
def test_the_idle_states_of_real_machines(tmp_path, name, slowest):
    """Their kernels are too old for limits of CPUs."""
    machine = root_of(name)
    assert resume_latency.read_limits(machine) == ()
    shutil.copytree(machine / CPU / "cpu0/cpuidle", tmp_path / CPU / "cpu0/cpuidle")
    write(tmp_path, {f"{CPU}/cpu0/power/pm_qos_resume_latency_us": "0"})
    assert resume_latency.read_limits(tmp_path) == (WakeLimit(0, Word("0"), slowest),)


@pytest.mark.parametrize("preference", ["", "<unsupported>", "x" * 21, "a b"])
def test_another_preference_is_left_out(root, preference):
    write(root, {FILES[DOMAIN.target]: preference})
    assert epp.read_preferences(root, governors_of(root)) == ()


def test_offline_cpus_are_left_out(root):
    assert epp.read_preferences(root, {}) == ()


@each_target
def test_a_state_is_set_and_restored(root, target):
    before = table.state_of(root, target)
    table.set_state(root, target, STATES[target])
    assert (root / FILES[target]).read_text() == str(STATES[target])
    table.set_state(root, target, before)
    assert table.state_of(root, target) == before


@pytest.mark.parametrize(
    ("other", "error"),
    [
        (EnergyDomain(2, cpus("2"), PERFORMANCE).target, Gone),
        (EnergyDomain(9, cpus("9"), PERFORMANCE).target, Gone),
        (WakeLimit(99, SHALLOW).target, Gone),
        (Target("epp", "2-3", None, "x"), Invalid),
        (Target("latency", "5", 5, "x"), Invalid),
        (Target("latency", "../cpu5", None, "x"), Invalid),
        (Target("latency", "05", None, "x"), Invalid),
    ],
)
def test_another_target_is_refused(root, other, error):
    for act in (table.state_of, lambda *args: table.set_state(*args, SHALLOW)):
        with pytest.raises(error):
            act(root, other)


@each_target
@pytest.mark.parametrize("word", ["", "a b", "49\n0", "-1", "N/A", "x" * 21])
def test_a_state_of_another_form_is_refused(root, target, word):
    before = (root / FILES[target]).read_text()
    with pytest.raises(Invalid):
        table.set_state(root, target, Word(word))
    assert (root / FILES[target]).read_text() == before


@each_target
def test_a_link_is_not_followed(root, target, tmp_path):
    folder = (root / FILES[target]).parent
    folder.rename(tmp_path / "outside")
    folder.symlink_to(tmp_path / "outside")
    with pytest.raises(Gone):
        table.set_state(root, target, STATES[target])


@pytest.mark.parametrize(
    ("target", "code", "words"),
    [
        (DOMAIN.target, errno.EBUSY, "with the governor performance, the driver allows performance alone"),
        (DOMAIN.target, errno.EINVAL, "does the driver have this preference"),
        *((target, errno.EROFS, "lacks ReadWritePaths=/sys/devices/system/cpu: renew it") for target in FILES),
    ],
)
def test_the_kernels_words_say_why_it_refuses(root, monkeypatch, target, code, words):
    def refuse(*_):
        raise OSError(code, os.strerror(code))

    monkeypatch.setattr(os, "write", refuse)
    with pytest.raises(ApplyFailed, match=words):
        table.set_state(root, target, STATES[target])


def test_a_preference_of_offline_cpus_is_not_gone(root):
    """An undo would call it gone, and forget it."""
    (root / governors.FOLDER / "policy2/energy_performance_preference").unlink()
    with pytest.raises(ApplyFailed, match="are all its CPUs offline"):
        table.state_of(root, DOMAIN.target)
