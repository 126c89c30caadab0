"""Waiting that a CPU limit explains is no contention, and no plan is proposed for it."""

from dataclasses import replace

import pytest
from support.made_up.checks.check_cases_cpus import beside
from support.made_up.readings import codes, delayed, findings, limited, placed, reading

from pinner.model.guest.guest import NovaIdentity
from pinner.model.machine.process import CpuQuota
from pinner.model.reading import HostSample, ThreadTimes, Throttled

GUEST = placed(quotas={"vcpu_quota": CpuQuota(20_000)})
EACH = [f"guest/vcpu{vcpu}" for vcpu in range(4)]


def waits(percent, limits, guest=GUEST, spare_ms=1900, **more):
    """No thread ran on each CPU for so many ms of the 2 s."""
    before, now = limited(guest, percent, limits, **more)
    spare = [dict.fromkeys(range(16), at) for at in (0, spare_ms)]
    before, now = (replace(each, spare_ms=free) for each, free in zip((before, now), spare, strict=True))
    return reading(before, now, guests=[guest])


def named(of, code):
    (found,) = (each for each in findings(of) if each.code == code)
    return found


def facts(found):
    return {each.name: each.value for each in found.evidence}


def test_a_limit_of_each_vcpu_is_named_with_its_owner():
    of = waits(69.6, dict.fromkeys(EACH, 69.5))
    found = named(of, "guest-cpu-limit")
    assert "vcpu-run-delay" not in codes(of)
    assert found.severity == "warning"
    assert found.message == "a CPU limit stops 4 threads of guest g1, the worst 69.5 % of the time"
    assert facts(found) == {
        "worst run delay": pytest.approx(69.6),
        "by limits": pytest.approx(69.5),
        "for a CPU": pytest.approx(0.1),
        "stopped": "vCPU 0, vCPU 1, vCPU 2 and 1 more",
        "limit 1": "20000 us of each 100000 us, by libvirt's vcpu_quota",
    }
    assert [each.line for each in found.remedies] == [f"virsh schedinfo {GUEST.uuid} --live vcpu_quota=-1"]


def test_waiting_beside_a_limit_is_contention():
    of = waits(30.0, dict.fromkeys(EACH, 18.0), spare_ms=100)
    found = named(of, "vcpu-run-delay")
    assert found.severity == "critical"
    assert found.message == "4 of 4 vCPUs of guest g1 wait 12 % of the time for a CPU"
    assert facts(found)["worst run delay"] == pytest.approx(30.0)
    assert facts(found)["by limits"] == pytest.approx(18.0)
    assert named(of, "guest-cpu-limit")
    # Others want these CPUs: no limit is lifted.
    assert named(of, "guest-cpu-limit").remedies == ()


@pytest.mark.parametrize("lost", ["interrupts_ms", "stolen_ms"])
def test_no_limit_is_lifted_for_time_that_no_thread_can_have(lost):
    of = waits(69.6, dict.fromkeys(EACH, 69.5))
    samples = (replace(each, **{lost: each.spare_ms}) for each in of.samples)
    assert named(of, "guest-cpu-limit").remedies
    assert not named(replace(of, samples=tuple(samples)), "guest-cpu-limit").remedies


def test_the_time_of_a_limit_above_is_divided_among_the_threads_that_wait():
    of = waits(10.0, {"guest": 30.0}, replace(GUEST, quotas={"global_quota": CpuQuota(20_000)}))
    assert facts(named(of, "guest-cpu-limit"))["by limits"] == pytest.approx(7.5)
    assert facts(named(of, "guest-cpu-limit"))["limit 1"] == "20000 us of each 100000 us, by libvirt's global_quota"
    assert "vcpu-run-delay" not in codes(of)


def test_a_newer_kernel_tells_what_the_limits_above_took():
    of = waits(10.0, {"guest": 80.0}, any_percent=2.0)
    assert facts(named(of, "vcpu-run-delay"))["by limits"] == pytest.approx(2.0)
    assert "guest-cpu-limit" not in codes(of)


def test_a_limit_counts_no_more_than_the_thread_waited():
    of = waits(10.0, {"guest": 400.0, **dict.fromkeys(EACH, 50.0)})
    assert facts(named(of, "guest-cpu-limit"))["by limits"] == pytest.approx(10.0)


@pytest.mark.parametrize(
    ("path", "guest", "who", "lines"),
    [
        ("machine.slice", GUEST, "systemd's CPUQuota of machine.slice",
         ["systemctl set-property machine.slice CPUQuota="]),
        ("machine.slice/a@1.scope", GUEST, "systemd's CPUQuota of a@1.scope",
         ["systemctl set-property a@1.scope CPUQuota="]),
        ("machine.slice/a;b.scope", GUEST, "nobody that pinner knows", []),
        ("user.slice/user@1000.service/app.slice/sshd.service", GUEST, "nobody that pinner knows", []),
        ("machine.slice/g.scope/libvirt", placed(quotas={"global_quota": CpuQuota(20_000)}), "libvirt's global_quota",
         [f"virsh schedinfo {GUEST.uuid} --live global_quota=-1"]),
        ("machine.slice/g.scope/libvirt/vcpu0", placed(), "nobody that pinner knows", []),
        ("machine/pod", placed(), "nobody that pinner knows", []),
        ("g.scope/vcpu0", placed(quotas={"vcpu_quota": CpuQuota(9)}, nova=NovaIdentity("", "", "", "small")),
         "libvirt's vcpu_quota; Nova's quota:cpu_quota, if flavor small has it", ["quota:cpu_quota=-1"]),
        ("g.scope/vcpu0", placed(quotas={"vcpu_quota": CpuQuota(9)},
                                 nova=NovaIdentity("", "", "", "small", {"quota:cpu_quota": "9"})),
         "Nova's quota:cpu_quota of flavor small", ["quota:cpu_quota=-1"]),
        ("g.scope/vcpu0", placed(quotas={"vcpu_quota": CpuQuota(9)},
                                 nova=NovaIdentity("", "", "", "small", {"hw:x": "y"})),
         "libvirt's vcpu_quota", [f"virsh schedinfo {GUEST.uuid} --live vcpu_quota=-1"]),
    ],
)  # fmt: skip
def test_who_set_the_limit(path, guest, who, lines):
    before, now = (
        replace(
            sample,
            cgroups=dict.fromkeys(sample.cgroups, path),
            throttled={path: sample.throttled["guest/vcpu0"]},
        )
        for sample in limited(guest, 20.0, {"guest/vcpu0": 80.0})
    )
    spare = [dict.fromkeys(range(16), at) for at in (0, 1900)]
    before, now = (replace(each, spare_ms=free) for each, free in zip((before, now), spare, strict=True))
    found = named(reading(before, now, guests=[guest]), "guest-cpu-limit")
    assert facts(found)["limit 1"] == f"20000 us of each 100000 us, by {who}"
    assert [each.line for each in found.remedies] == lines


def test_a_limit_of_the_emulator_stops_its_threads():
    guest = replace(GUEST, quotas={"emulator_quota": CpuQuota(20_000)})
    tids = [thread.tid for thread in guest.emulator.threads]
    first, last = (
        HostSample(
            threads=dict.fromkeys(tids, ThreadTimes(5, times * 10**9)),
            cgroups=dict.fromkeys(tids, "g.scope/emulator"),
            throttled={"g.scope/emulator": Throttled(CpuQuota(20_000), times * 10**9, None)},
        )
        for times in (0, 1)
    )
    found = named(reading(first, last, guests=[guest]), "guest-cpu-limit")
    assert found.message == "a CPU limit stops 2 threads of guest g1, the worst 25 % of the time"
    assert facts(found)["stopped"] == f"emulator, emulator thread {tids[1]}"
    assert facts(found)["limit 1"] == "20000 us of each 100000 us, by libvirt's emulator_quota"


def test_a_limit_that_changed_between_the_samples_is_told():
    of = waits(69.6, dict.fromkeys(EACH, 69.5))
    first = {path: replace(times, quota=None) for path, times in of.samples[0].throttled.items()}
    changed = replace(of, samples=(replace(of.samples[0], throttled=first), of.now))
    assert facts(named(changed, "guest-cpu-limit"))["limit 1"] == (
        "20000 us of each 100000 us, by libvirt's vcpu_quota (at first: none)"
    )


def test_a_counter_that_went_back_is_not_known():
    of = waits(69.6, dict.fromkeys(EACH, 69.5), before=7)
    back = replace(
        of, samples=(replace(of.now, threads=of.samples[0].threads), replace(of.samples[0], threads=of.now.threads))
    )
    assert {(each.code, each.severity) for each in findings(back)} >= {
        ("vcpu-run-delay", "unknown"),
        ("guest-cpu-limit", "unknown"),
    }
    why = named(back, "guest-cpu-limit").message
    assert why.startswith("not known, because the counter time stopped by the limit of cgroup guest/vcpu0 went back")


def test_a_limit_that_never_stopped_a_thread_before_counts_from_its_begin():
    of = waits(69.6, dict.fromkeys(EACH, 69.5))
    fresh = replace(of, samples=(replace(of.samples[0], throttled={}, cgroups={}), of.now))
    assert facts(named(fresh, "guest-cpu-limit"))["by limits"] == pytest.approx(69.5)


def test_the_host_does_not_delay_vcpus_that_a_limit_stops():
    assert "host-delays-vcpus" in codes(beside(1800))
    of = beside(1800)
    stopped = limited(of.snapshot.guests[0], 7.0, dict.fromkeys(EACH, 6.5))
    samples = tuple(
        replace(mine, throttled=theirs.throttled, cgroups=theirs.cgroups)
        for mine, theirs in zip(of.samples, stopped, strict=True)
    )
    assert "host-delays-vcpus" not in codes(replace(of, samples=samples))


def test_without_limits_nothing_is_said_of_them():
    found = named(reading(*delayed(GUEST, 7.0), guests=[GUEST]), "vcpu-run-delay")
    assert "by limits" not in facts(found)
