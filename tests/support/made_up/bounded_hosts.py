"""Hypothesis strategies for hosts whose guests are in slices, restricted by their definitions or pinned by operators,
beside Open vSwitch's lcores, with cores of one or several classes."""

from data.field.core_classes import CORE_ULTRA_185H, I9_13900K, RK3399, RK3588, RYZEN_7900X3D
from hypothesis import strategies as st
from support.hosts import guest, interleaved, plain, process, snapshot

from pinner.model.cpuset import CpuSet
from pinner.model.guest.guest import Guest, OperatorPin
from pinner.model.machine.process import CpuLimit
from pinner.model.snapshot import OvsDpdk, OvsMasks, Snapshot

_ALIKE = (plain(8), plain(16, 2), plain(32), interleaved(8, 1), interleaved(12))
_CLASSES = (I9_13900K, CORE_ULTRA_185H, RK3399, RK3588, RYZEN_7900X3D)


@st.composite
def _blocks(draw, cpus: CpuSet) -> CpuSet:
    ids = list(cpus)
    first = draw(st.integers(0, len(ids) - 1))
    return CpuSet.of(ids[first : draw(st.integers(first, len(ids) - 1)) + 1])


@st.composite
def _guests(draw, number: int, online: CpuSet, slices: list[CpuLimit]) -> Guest:
    limits = (draw(st.sampled_from(slices)),) if slices and draw(st.booleans()) else ()
    within = limits[0].cpus if limits else online
    vcpus, kind = draw(st.integers(1, 6)), draw(st.sampled_from(["free", "restricted", "pinned"]))
    mask = draw(_blocks(within))
    match kind:
        case "free":
            return guest(number, vcpus, within, cpu_limits=limits)
        case "restricted":
            return guest(number, vcpus, mask, cpu_limits=limits, restriction=mask)
        case _:
            pins = tuple(OperatorPin("vcpu", vcpu, mask, "live") for vcpu in range(vcpus))
            return guest(number, vcpus, within, cpu_limits=limits, pins=[str(mask)] * vcpus, operator_pins=pins)


@st.composite
def bounded_hosts(draw) -> Snapshot:
    top = draw(st.sampled_from((*_ALIKE, *_CLASSES)))
    online = top.online
    slices = [
        CpuLimit(f"machine.slice/machine-{name}.slice", cpus)
        for name in "ab"[: draw(st.integers(0, 2))]
        if (cpus := draw(_blocks(online))) != online
    ]
    polling, lcores = (draw(st.one_of(st.just(CpuSet()), _blocks(online))) for _ in range(2))
    polling = CpuSet.of(list(polling)[: len(online) // 8])
    ovs = OvsDpdk(OvsMasks(polling, CpuSet.of(list(lcores - polling)[:3])), polling)
    return snapshot(
        top,
        [draw(_guests(number, online, slices)) for number in range(draw(st.integers(1, 4)))],
        [process(900, draw(st.sampled_from([0.0, 40.0, 300.0])), str(online))],
        ovs=ovs if ovs.cpus or ovs.masks.lcore else None,
    )
