"""Packings that are small enough to try every layout."""

from hypothesis import strategies as st

from pinner.planning.packing.values import Core, PackingDomain, PackingGuest, PackingNode


def node(number: int, *domains: list[int], begun: int = 0) -> PackingNode:
    """A node of these domains, each with the number of free CPUs of each core; CPU 100 * node is its first one."""
    first, found = 100 * number, []
    for sizes in domains:
        cores = []
        for size in sizes:
            mask = (1 << size) - 1 << first
            cores.append(Core(mask, bool(mask & begun)))
            first += 2
        found.append(PackingDomain(tuple(cores)))
    return PackingNode(number, tuple(found))


@st.composite
def small_packings(draw):
    """Nodes of one or two domains, and up to three guests."""
    cores = st.lists(st.integers(1, 2), min_size=1, max_size=2)
    shapes = draw(st.lists(st.lists(cores, min_size=1, max_size=2), min_size=1, max_size=2))
    begun = draw(st.sampled_from([0, 0, 1, 4]))
    nodes = [node(number, *domains, begun=begun) for number, domains in enumerate(shapes)]
    sizes = draw(st.lists(st.integers(1, 5), min_size=1, max_size=3))
    ranks = st.dictionaries(st.sampled_from(range(len(nodes))), st.integers(0, 1), min_size=1)
    same = draw(st.booleans())
    return nodes, [
        PackingGuest(f"g{n}", size, dict.fromkeys(range(len(nodes)), 0) if same else draw(ranks))
        for n, size in enumerate(sizes)
    ]
