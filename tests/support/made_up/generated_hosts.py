"""Generated hosts for packings: 64 to 512 CPUs, 2 to 8 nodes, L3 domains of 4 or 8 cores, 60 to 100 % full."""

import random
from dataclasses import dataclass, replace

from pinner.planning.packing.values import Core, PackingDomain, PackingGuest, PackingNode

FRIENDLY = (2, 4, 8, 16)
ANY = tuple(range(2, 17))


@dataclass(frozen=True)
class GeneratedHost:
    """A host with the guests that shall be placed on it."""

    seed: int
    friendly: bool
    cpus: int
    nodes: tuple[PackingNode, ...]
    guests: tuple[PackingGuest, ...]


def generated(seed: int, *, friendly: bool) -> GeneratedHost:
    """The host of a seed: an eighth of each node, in whole cores, is taken for housekeeping and for emulators each."""
    chance = random.Random(seed)
    count = chance.choice([64, 96, 128, 192, 256, 384, 512])
    number = chance.choice([nodes for nodes in (2, 4, 8) if count // nodes >= 32])
    cores, l3 = count // number // 2, chance.choice([4, 8])
    taken = 2 * max(1, cores // 8)
    nodes = tuple(_node(node, cores, l3, taken, number) for node in range(number))
    goal = int(sum(node.free for node in nodes) * chance.uniform(0.6, 1.0))
    return GeneratedHost(seed, friendly, count, nodes, tuple(_guests(chance, goal, friendly, number)))


def with_homes(host: GeneratedHost, share: float = 1.0) -> GeneratedHost:
    """The host, where this share of the guests has memory on one node, so that nodes are not alike for them."""
    chance, nodes = random.Random(host.seed), range(len(host.nodes))

    def with_home(guest: PackingGuest) -> PackingGuest:
        home = chance.choice(nodes)
        return replace(guest, ranks={node: int(node != home) for node in nodes}) if chance.random() < share else guest

    return replace(host, guests=tuple(map(with_home, host.guests)))


def _node(node: int, cores: int, l3: int, taken: int, nodes: int) -> PackingNode:
    every = cores * nodes
    found = [Core(1 << core | 1 << core + every) for core in range(node * cores, (node + 1) * cores)]
    domains = (
        tuple(core for position, core in enumerate(found[first : first + l3], first) if position >= taken)
        for first in range(0, cores, l3)
    )
    return PackingNode(node, tuple(PackingDomain(domain) for domain in domains if domain))


def _guests(chance: random.Random, goal: int, friendly: bool, nodes: int) -> list[PackingGuest]:
    found: list[PackingGuest] = []
    left = goal
    while sizes := [size for size in (FRIENDLY if friendly else ANY) if size <= left]:
        size = chance.choice(sizes)
        found.append(PackingGuest(f"g{len(found):03d}", size, dict.fromkeys(range(nodes), 0)))
        left -= size
    return found
