from ipaddress import ip_address

from oslo_config import cfg, types

from pinner.conf.patterns import ABSOLUTE_PATH

MOST_PINGED = 64


class _GuestAddress(types.String):
    """GUEST=ADDRESS."""

    def __call__(self, value: object) -> str:
        text = str(super().__call__(value))
        name, _, address = text.rpartition("=")
        if not name:
            raise ValueError(f"{text!r} is not GUEST=ADDRESS")
        ip_address(address)
        return text


NAME = "agent"
OPTIONS = [
    cfg.StrOpt(
        "state_dir",
        regex=ABSOLUTE_PATH,
        sample_default="/var/lib/pinner",
        help="Directory of the agent's journal and of the default database. The journal records every change that the "
        "agent makes to this host, so that a change can be undone without a server. Default: /var/lib/pinner for root, "
        "~/.local/state/pinner for other users.",
    ),
    cfg.StrOpt(
        "socket",
        regex=ABSOLUTE_PATH,
        sample_default="/run/pinner/agent.sock",
        help="Unix socket of the agent's process. Only [api] user may connect, and only root may write in the folder. "
        "Default: /run/pinner/agent.sock if state_dir is /var/lib/pinner, else agent.sock in state_dir.",
    ),
    cfg.StrOpt(
        "recover",
        default="back",
        choices=[
            ("back", "undo the apply: each thread gets the affinity that it had before"),
            ("forward", "finish the apply; undo it if a change fails"),
        ],
        help="What the agent does, when it starts, with an apply whose process died. The agent always finishes a "
        "rollback whose process died.",
    ),
    cfg.BoolOpt(
        "keep_measures",
        default=True,
        help="Whether the agent of a server measures run delay, CPU use and drops of the guests and the host every 5 "
        "seconds, and keeps them for 31 days in state_dir: about 0.4 MiB for each guest.",
    ),
    cfg.ListOpt(
        "pinged_guests",
        item_type=_GuestAddress(),
        default=[],
        sample_default=["web-1=192.0.2.7"],
        help="Guests that the agent pings once a second from this host, by name or UUID, each with its IPv4 or IPv6 "
        f"address; the first {MOST_PINGED} of them. The round trips and the loss are measures then. Nothing is known "
        "of a guest that does not answer pings.",
    ),
]
