"""Boots of a host (/proc/sys/kernel/random/boot_id). An empty id is not known."""


def differ(made: str, now: str) -> bool:
    """Whether the host was restarted between: thread ids and start times belong to other threads then. A boot that is
    not known counts as the same one."""
    return made != now and "" not in (made, now)
