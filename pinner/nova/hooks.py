"""Hooks for clouds older than Nova 22, as Nova's HookManager loads and calls them.

An entry point of the group ``nova.hooks`` has the name of a place in Nova's code. Nova makes one object of its class,
and calls its ``pre`` and ``post``; ``post`` gets the result and then the arguments. nova-compute calls
``build_instance`` after it started the guest or failed to. An error here must not affect nova-compute.

Those clouds run Python 3.8 or older: this module and ``handover`` need only its standard library."""

import logging
import threading

from pinner.nova.delivery import handover

LOG = logging.getLogger(__name__)


class BuildInstance:
    """Around ComputeManager._do_build_and_run_instance."""

    def post(self, _result: object, *args: object, **kwargs: object) -> None:
        """Report the new guest, in a thread. ``args``: the manager, the request's context, the instance."""
        names = ("manager", "context", "instance")
        arguments = dict(zip(names, args), **kwargs)  # noqa: B905 - Python 3.8 has no strict=
        instance, context = arguments.get("instance"), arguments.get("context")
        guest = getattr(instance, "uuid", None)
        if guest is None:
            LOG.warning("build_instance was called without an instance")
            return
        host = getattr(instance, "host", None) or getattr(arguments.get("manager"), "host", "")
        source = f"nova {getattr(context, 'request_id', '')}, user {getattr(context, 'user_id', '')}"
        threading.Thread(target=_send, args=(guest, source, host), name="pinner-hook", daemon=True).start()


def _send(guest: str, source: str, host: str) -> None:
    try:
        handover.send_started(guest, "build_instance", source, host)
    except (OSError, ValueError) as error:
        LOG.warning("guest %s, build_instance: cannot send the event to pinner: %s", guest, error)
