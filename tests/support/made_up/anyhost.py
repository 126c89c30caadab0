"""Hypothesis strategies for any host: sparse and interleaved ids, SMT, nodes without CPUs or memory, and offline,
isolated, dedicated and restricted CPUs."""

from hypothesis import assume
from hypothesis import strategies as st
from support.hosts import GIB, guest, process, snapshot, topology

from pinner.model.cpuset import CpuSet
from pinner.model.guest.guest import NovaIdentity
from pinner.model.guest.guest_numa import GuestCell, GuestNuma, MemoryBinding


@st.composite
def topologies(draw):
    """Nodes with sparse ids, some without CPUs or memory; cores of one or two threads with shuffled, sparse ids."""
    nodes = draw(st.lists(st.integers(0, 12), min_size=1, max_size=3, unique=True))
    shapes = {node: draw(st.lists(st.integers(1, 2), max_size=10)) for node in nodes}
    total = sum(map(sum, shapes.values()))
    assume(total)
    ids = iter(draw(st.permutations(range(0, 2 * total, draw(st.sampled_from([1, 2]))))))
    cores = {node: [[next(ids) for _ in range(threads)] for threads in shape] for node, shape in shapes.items()}
    every = [cpu for node in cores.values() for core in node for cpu in core]
    some = st.lists(st.sampled_from(every), max_size=len(every) // 4).map(CpuSet.of)
    sizes = {node: draw(st.sampled_from([0, 64 * GIB, 64 * GIB])) for node in nodes}
    few_balanced = some.map(lambda cpus: CpuSet.of(every) - cpus - CpuSet.of(every[:2]))
    lone = draw(st.one_of(st.just(CpuSet()), some, few_balanced))
    off = draw(st.one_of(st.just(CpuSet()), some))
    return topology(cores, offline=str(off), isolated=str(lone), memory_kib=sizes)


flavors = st.fixed_dictionaries(
    {},
    optional={
        "pinner:excluded": st.sampled_from(["true", "no", "maybe"]),
        "pinner:strategy": st.sampled_from(["shared-pool", "numa-local", "isolated", "exclusive", "fast"]),
    },
)


@st.composite
def numa(draw, top):
    """What binds a guest to nodes: nothing, the memory of all its vCPUs or of the vCPUs of each cell, or huge pages;
    also nodes without CPUs, or without memory."""
    nodes = st.lists(st.sampled_from([node.id for node in top.nodes]), min_size=1, max_size=2, unique=True)
    modes = st.sampled_from(["strict", "strict", "preferred", "restrictive"])
    binding = st.one_of(st.none(), st.builds(MemoryBinding, modes, nodes.map(tuple)))
    cells = tuple(GuestCell(cell, CpuSet.of((2 * cell, 2 * cell + 1)), GIB, draw(binding)) for cell in range(2))
    huge = st.dictionaries(nodes.map(min), st.integers(0, GIB), max_size=2)
    pins = st.lists(st.sampled_from([cpu.id for cpu in top.cpus]), min_size=1).map(CpuSet.of)
    return draw(
        st.one_of(
            st.just(GuestNuma()),
            st.just(GuestNuma(cells)),
            st.builds(GuestNuma, memory=binding, huge_kib=huge),
            st.builds(GuestNuma, st.just(cells), pins=st.dictionaries(st.integers(0, 4), pins, max_size=3)),
        )
    )


@st.composite
def snapshots(draw):
    top = draw(topologies())
    every = [cpu.id for cpu in top.cpus]
    online = top.online
    assume(online)
    masks = st.lists(st.sampled_from(sorted(online)), min_size=1, max_size=6).map(CpuSet.of)
    node = st.sampled_from([n.id for n in top.nodes])
    guests = [
        guest(
            number,
            draw(st.integers(1, 5)),
            draw(st.one_of(st.just(online), masks)),
            memory=draw(st.dictionaries(node, st.integers(1, GIB), max_size=2)),
            memory_kib=GIB,
            iothreads=draw(st.integers(0, 1)),
            vhost_threads=draw(st.integers(0, 1)),
            unplugged=draw(st.integers(0, 1)),
            dedicated=draw(st.booleans()) and draw(st.booleans()),
            nova=NovaIdentity("i", "p", "u", "f", draw(flavors)),
            policy=draw(st.sampled_from(["", "", "isolate", "share"])),
            numa=draw(numa(top)),
        )
        for number in range(draw(st.integers(0, 4)))
    ]
    # A mask with every balanced CPU restricts nothing.
    narrow = masks.map(lambda mask: str(online if online - top.isolated <= mask else mask))
    affinities = st.lists(st.one_of(st.just(str(online)), st.just(str(online)), narrow), min_size=1, max_size=3)
    processes = [
        process(
            300 + 10 * number,
            draw(st.sampled_from([0.0, 3.0, 150.0, 1600.0])),
            *affinity,
            reasons=["" if mask == str(online) else "restricted" for mask in affinity],
            reserves=draw(st.sampled_from(["", "", "privileged", "configured", "worked"])),
        )
        for number in range(draw(st.integers(0, 4)))
        for affinity in [draw(affinities)]
    ]
    nova = draw(st.one_of(st.just([]), st.lists(st.sampled_from(every), max_size=4)))
    shared = draw(st.one_of(st.just([]), st.just([]), st.lists(st.sampled_from(every), min_size=len(every) // 2)))
    return snapshot(top, guests, processes, dedicated=CpuSet.of(nova), shared=CpuSet.of(shared))


STRATEGIES = ("shared-pool", "numa-local", "isolated", "exclusive")
parameters = st.fixed_dictionaries(
    {
        "guests": st.sampled_from([(), (), ("g0",)]),
        "processes": st.sampled_from([(), (), ("300",)]),
        "housekeeping": st.one_of(st.just("auto"), st.just("auto"), st.integers(0, 8).map(str)),
        "emulator": st.one_of(st.just("auto"), st.just("auto"), st.integers(0, 8).map(str)),
        "nova_emulators": st.booleans(),
        "smt": st.sampled_from(["prefer", "isolate", "require"]),
    }
)
