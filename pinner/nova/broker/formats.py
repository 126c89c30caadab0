"""The hosts that send Nova's notifications in the unversioned format only, which pinner cannot use."""

import logging
import threading
from collections.abc import Mapping

from cachetools import LRUCache

from pinner.render import visible
from pinner.repeated import Repeated

LOG = logging.getLogger(__name__)

MAX_HOSTS = 10_000
"""The hosts that are remembered."""
MAX_NAME = 255
"""Characters of a host's name. A longer publisher is no host: any program with access to the broker can send one."""
ENOUGH = 2
"""Unversioned notifications without a versioned one. With both formats, Nova sends one of each in turn."""


class Formats:
    """The formats of the hosts' notifications. Several threads may use it."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._warning = Repeated(LOG)
        self._unversioned: LRUCache[str, int] = LRUCache(MAX_HOSTS)
        """The number of a host's unversioned notifications since its last versioned one."""

    def is_unversioned(self, publisher: object, event_type: object, payload: object) -> bool:
        """Whether a notification is unversioned. Logs a warning, at most once a minute, where its host sends no others.

        The publisher is ``compute.HOST`` in an unversioned notification, ``nova-compute:HOST`` in a versioned one.
        """
        if isinstance(payload, Mapping) and "nova_object.version" in payload:
            with self._lock:
                self._unversioned.pop(str(publisher).partition(":")[2], None)
            return False
        if str(event_type).startswith("instance."):
            return False
        service, _, host = str(publisher).partition(".")
        if service == "compute" and len(host) <= MAX_NAME and self._count(host) >= ENOUGH:
            self._warning.warn(
                "host %s sends unversioned notifications only (%s), which pinner cannot use: set [notifications] "
                "notification_format = both (or versioned) in its nova.conf and restart nova-compute",
                visible(host),
                visible(str(event_type)[:MAX_NAME]),
            )
        return True

    def _count(self, host: str) -> int:
        with self._lock:
            count = self._unversioned[host] = self._unversioned.get(host, 0) + 1
        return count
