"""For clouds older than Nova 22: hooks as Nova's HookManager loaded and called them.

An entry point of the group ``nova.hooks`` is named after a place in Nova; Nova makes one object of it and calls its
``pre`` and ``post``, the latter with the result first and the arguments after it. ``build_instance`` is in
nova-compute, after the guest was started (or not). What goes wrong here must not matter there.

Those clouds run Python 3.8 at most: this module and ``handover`` keep to that, and to the standard library.
"""

import logging
import threading

from pinner.nova import handover

LOG = logging.getLogger(__name__)


class BuildInstance:
    """Called around ComputeManager._do_build_and_run_instance."""

    def post(self, _result: object, *args: object, **kwargs: object) -> None:
        """``args`` are the manager itself, the request's context, and the instance. Tells pinner in a thread."""
        names = ("manager", "context", "instance")
        given = dict(zip(names, args), **kwargs)  # noqa: B905 - strict is not that old
        instance, context = given.get("instance"), given.get("context")
        guest = getattr(instance, "uuid", None)
        if guest is None:
            LOG.warning("build_instance was called without an instance")
            return
        host = getattr(instance, "host", None) or getattr(given.get("manager"), "host", "")
        source = f"nova {getattr(context, 'request_id', '')}, user {getattr(context, 'user_id', '')}"
        threading.Thread(target=_tell, args=(guest, source, host), name="pinner-hook", daemon=True).start()


def _tell(guest: str, source: str, host: str) -> None:
    try:
        handover.started(guest, "build_instance", source, host)
    except (OSError, ValueError) as error:
        LOG.warning("guest %s, build_instance: pinner was not told: %s", guest, error)
