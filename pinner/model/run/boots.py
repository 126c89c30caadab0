"""Boots of a host, by their ids (/proc/sys/kernel/random/boot_id). An empty id is a boot that is not known."""


def differ(made: str, now: str) -> bool:
    """Whether the host was restarted between two boots. A boot that is not known counts as the same one.

    Thread ids and start times count from the boot: after a restart, the same ones belong to other threads.
    """
    return made != now and "" not in (made, now)
