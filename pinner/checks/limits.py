"""CPU limits: which waiting of threads they explain, and who set them. Pure."""

from collections import defaultdict
from collections.abc import Iterable, Iterator, Mapping
from contextlib import suppress
from shlex import quote
from typing import NamedTuple

from pinner.checks.common import NotKnown, find_each, flavor, grown, number, sysctl_now
from pinner.model.cpuset import CpuSet, union
from pinner.model.guest.guest import Guest
from pinner.model.machine.process import Thread, cgroup_with_parents, host_unit
from pinner.model.outcome.check import Evidence, Found, Remedy, Subject
from pinner.model.reading import SERVICES, HostReading, HostSample, Throttled
from pinner.model.snapshot import vcpu_threads
from pinner.model.text import counted, listed

WARN_PERCENT = 5.0
LIFT = "as root, if the guest is to have more CPU time"
_QUOTAS = {"vcpu": "vcpu_quota", "iothread": "iothread_quota", "emulator": "emulator_quota"}
"""libvirt's cgroup of a part, without its number, and the quota that libvirt writes there."""
_NOVA = "quota:cpu_quota"
_SHOWN = 3
RUNTIME = "kernel.sched_rt_runtime_us"
_PERIOD, _DEFAULT_PERIOD = "proc/sys/kernel/sched_rt_period_us", 1_000_000
"""Microseconds."""
_Counter = tuple[str, str]
"""A cgroup, and the field of Throttled."""


class Waiting(NamedTuple):
    """Of a thread, in per cent of the sample."""

    whole: float
    limited: float
    """While a CPU limit stopped it."""
    throttled: float
    """While real-time throttling stopped it, at most."""

    @property
    def contention(self) -> float:
        return self.whole - self.limited - self.throttled


def realtime_share(reading: HostReading) -> float:
    """Of each period, the time after which the kernel stops real-time threads; 1: it never does."""
    runtime = sysctl_now(reading, RUNTIME)
    period = number(reading.details.settings, _PERIOD) or _DEFAULT_PERIOD
    return runtime / period if runtime is not None and 0 <= runtime < period else 1.0


class Waits:
    """How long threads waited. Threads that wait share the time of their limits."""

    def __init__(self, reading: HostReading) -> None:
        self._before, self._now = reading.before or HostSample(), reading.now
        self._nanoseconds = reading.seconds * 1e9
        self._delays: defaultdict[_Counter, int] = defaultdict(int)
        share, vcpus = realtime_share(reading), vcpu_threads(reading.snapshot)
        self._throttled = {each.tid: (1 - share) / share for each in vcpus if share and each.realtime in ("fifo", "rr")}
        for tid in self._now.cgroups:
            with suppress(NotKnown):
                for counter in self._counters(tid):
                    self._delays[counter] += self._delay(tid)

    def of(self, tid: int) -> Waiting:
        """Raises NotKnown."""
        delay = self._delay(tid)
        stopped = sum(self._grown(counter) * delay / (self._delays[counter] or 1) for counter in self._counters(tid))
        limited = min(delay, stopped)
        # The kernel stops them only after they ran for their share.
        throttled = min(delay - limited, self._throttling(tid))
        return Waiting(*(100 * each / self._nanoseconds for each in (delay, limited, throttled)))

    def limits(self, tid: int) -> Iterator[str]:
        """The cgroups whose limits stopped the thread's in the sample. Raises NotKnown."""
        for path in cgroup_with_parents(self._now.cgroups.get(tid, "")):
            if path in self._now.throttled and self._grown((path, "own_ns")):
                yield path

    def _delay(self, tid: int) -> int:
        earlier, later = self._before.threads.get(tid), self._now.threads.get(tid)
        if earlier is None or later is None:
            raise NotKnown(f"/proc/{tid}/schedstat could not be read twice")
        return grown("run delay", earlier.wait_ns, later.wait_ns)

    def _throttling(self, tid: int) -> float:
        if not (factor := self._throttled.get(tid)):
            return 0.0
        return factor * grown("run time", self._before.threads[tid].run_ns, self._now.threads[tid].run_ns)

    def _counters(self, tid: int) -> tuple[_Counter, ...]:
        path = self._now.cgroups.get(tid, "")
        if (own := self._now.throttled.get(path)) and own.any_ns is not None:
            return ((path, "any_ns"),)
        return tuple((above, "own_ns") for above in cgroup_with_parents(path) if above in self._now.throttled)

    def _grown(self, counter: _Counter) -> int:
        """A cgroup is not in a sample before a limit has stopped it."""
        path, field = counter
        earlier = self._before.throttled.get(path)
        before: int = (getattr(earlier, field) or 0) if earlier else 0
        return grown(f"time stopped by the limit of cgroup {path}", before, getattr(self._now.throttled[path], field))


class ServiceLimits(NamedTuple):
    stopped: Mapping[str, float]
    """Per cent of the sample in which its limit stopped a unit, the most stopped one first."""
    began_anew: tuple[str, ...]
    """Units with a counter that went back: what they waited before is not known."""


def of_services(reading: HostReading) -> ServiceLimits:
    if reading.before is None:
        return ServiceLimits({}, ())
    stopped: dict[str, float] = {}
    began_anew = []
    for path, now in reading.now.throttled.items():
        if path.partition("/")[0] == SERVICES:
            before, unit = reading.before.throttled.get(path), host_unit(path) or path
            if before and before.own_ns > now.own_ns:
                before = None
                began_anew.append(unit)
            stopped[unit] = _stopped_percent(before, now, reading.seconds)
    return ServiceLimits(dict(sorted(stopped.items(), key=lambda each: -each[1])), tuple(began_anew))


def _stopped_percent(before: Throttled | None, now: Throttled, seconds: float) -> float:
    """At most, as PSI sees it: the kernel adds up the time of all CPUs that the limit stops, and they ran for the
    quota before."""
    stopped = (now.own_ns - (before.own_ns if before else 0)) / seconds / 1e9
    quotas = (each.quota for each in (before, now) if each)
    allowed = min(quota.quota_us / quota.period_us if quota else 0.0 for quota in quotas)
    return 100 * stopped / max(stopped + allowed, 1)


def find_limits(reading: HostReading) -> Iterator[Found]:
    """Guests whose threads a CPU limit stops."""
    waits = Waits(reading)

    def find(guest: Guest) -> Iterator[Found]:
        threads = dict(_threads(guest, reading.now.cgroups))
        waiting = {part: waits.of(thread.tid) for part, thread in threads.items()}
        stopped = {part: each for part, each in waiting.items() if each.limited >= WARN_PERCENT}
        if stopped:
            worst = max(stopped.values(), key=lambda each: each.limited)
            paths = dict.fromkeys(path for part in stopped for path in waits.limits(threads[part].tid))
            has_room = _has_room(reading, [threads[part] for part in stopped], waiting.values())
            yield Found(
                Subject("guest", guest.name),
                f"a CPU limit stops {counted(len(stopped), 'thread')} of guest {guest.name}, the worst "
                f"{worst.limited:.3g} % of the time",
                (
                    *split(worst),
                    Evidence("stopped", listed(list(stopped), _SHOWN)),
                    *(
                        Evidence(f"limit {number}", text)
                        for number, text in enumerate(_limits(reading, guest, paths), 1)
                    ),
                ),
                tuple(dict.fromkeys(line for path in paths for line in _lifting(guest, path))) if has_room else (),
            )

    guests = (
        guest for guest in reading.snapshot.guests if reading.before and any(_threads(guest, reading.now.cgroups))
    )
    yield from find_each(guests, lambda guest: Subject("guest", guest.name), find)


def split(worst: Waiting) -> tuple[Evidence, ...]:
    """The columns of a table of waiting: whole, by limits, and the rest."""
    whole = Evidence("worst run delay", worst.whole, "%")
    others = {"by limits": worst.limited, "by real-time throttling": worst.throttled}
    if not any(others.values()):
        return (whole,)
    parts = {name: percent for name, percent in others.items() if percent} | {"for a CPU": worst.contention}
    return whole, *(Evidence(name, percent, "%") for name, percent in parts.items())


def _threads(guest: Guest, cgroups: Mapping[int, str]) -> Iterator[tuple[str, Thread]]:
    """Those that a limit ever stopped, by name."""
    for target, threads in guest.threads_by_target.items():
        name = {"vcpu": f"vCPU {target.part}", "iothread": f"iothread {target.part}"}.get(target.kind, target.kind)
        for position, thread in enumerate(each for each in threads if each.tid in cgroups):
            yield name if not position else f"{name} thread {thread.tid}", thread


def _has_room(reading: HostReading, threads: Iterable[Thread], waiting: Iterable[Waiting]) -> bool:
    """Whether the CPUs of the threads had the time that the limits took."""
    return idle(reading, union(thread.affinity for thread in threads)) >= sum(each.limited for each in waiting)


def idle(reading: HostReading, cpus: CpuSet) -> float:
    """How long threads could have run on these CPUs, in per cent of one CPU."""
    before, now = (
        {cpu: ms - each.interrupts_ms.get(cpu, 0) - each.stolen_ms.get(cpu, 0) for cpu, ms in each.spare_ms.items()}
        for each in (reading.before or HostSample(), reading.now)
    )
    return sum(now[cpu] - before[cpu] for cpu in cpus if cpu in before and cpu in now) / reading.seconds / 10


def _limits(reading: HostReading, guest: Guest, paths: Iterable[str]) -> Iterable[str]:
    return dict.fromkeys(_limit(reading, guest, path) for path in paths)


def _limit(reading: HostReading, guest: Guest, path: str) -> str:
    quota, earlier = reading.now.throttled[path].quota, (reading.before or HostSample()).throttled.get(path)
    changed = f" (at first: {earlier.quota or 'none'})" if earlier and earlier.quota != quota else ""
    return f"{quota or 'none'}, by {_owner(guest, path)}{changed}"


def _owner(guest: Guest, path: str) -> str:
    setting = _setting(guest, path)
    if setting and _is_novas(guest, setting):
        flavor_name = guest.nova.flavor if guest.nova else ""
        if guest.nova and guest.nova.specs_known:
            return f"Nova's {_NOVA} of flavor {flavor_name}"
        return f"libvirt's {setting}; Nova's {_NOVA}, if flavor {flavor_name} has it"
    if setting:
        return f"libvirt's {setting}"
    unit = host_unit(path)
    return f"systemd's CPUQuota of {unit}" if unit else "nobody that pinner knows"


def _lifting(guest: Guest, path: str) -> Iterator[Remedy]:
    setting = _setting(guest, path)
    if setting and _is_novas(guest, setting):
        yield from flavor(f"{_NOVA}=-1", [guest])
    elif setting:
        yield Remedy(f"virsh schedinfo {quote(guest.uuid)} --live {setting}=-1", LIFT)
    elif unit := host_unit(path):
        yield Remedy(f"systemctl set-property {quote(unit)} CPUQuota=", LIFT)


def _setting(guest: Guest, path: str) -> str:
    """libvirt's quota of the cgroup, if the guest's XML has it; else empty."""
    name = path.rpartition("/")[2]
    setting = _QUOTAS.get(name.rstrip("0123456789"), "" if name.endswith(".slice") else "global_quota")
    return setting if setting in guest.quotas else ""


def _is_novas(guest: Guest, setting: str) -> bool:
    """Whether Nova wrote it from the flavor, as far as is known."""
    nova = guest.nova
    return setting == "vcpu_quota" and nova is not None and (not nova.specs_known or _NOVA in nova.extra_specs)
