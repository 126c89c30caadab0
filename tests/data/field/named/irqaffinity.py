"""isolcpus=4-7, and irqaffinity=0-5: new interrupts may go to the isolated CPUs 4 and 5.

Right: irqaffinity=0-3.
"""

from dataclasses import replace

from support.hosts import KERNEL, plain, snapshot


def _host(arguments: str):
    return snapshot(plain(8, isolated="4-7", kernel=replace(KERNEL, command_line=arguments)))


HOST = _host("isolcpus=4-7 irqaffinity=0-5")
INSIDE = _host("isolcpus=4-7 irqaffinity=4-7")
"""No CPU of irqaffinity is right: those of the host, 0-3."""
APART = _host("isolcpus=4-7 irqaffinity=0-3")
