from oslo_config import cfg

NAME = "agent"
OPTIONS = [
    cfg.StrOpt(
        "state_dir",
        default="/var/lib/pinner/agent",
        help="Folder of the agent's journal: what it did to this host, so that it can be undone without any server.",
    ),
]
