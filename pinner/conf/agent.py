from oslo_config import cfg

NAME = "agent"
OPTIONS = [
    cfg.StrOpt(
        "state_dir",
        sample_default="/var/lib/pinner",
        help="Folder of the agent's journal (what it did to this host, so that it can be undone without any server) "
        "and of the default database. By default /var/lib/pinner for root, else ~/.local/state/pinner.",
    ),
    cfg.StrOpt(
        "recover",
        default="back",
        choices=[
            ("back", "the apply is taken back: every thread gets the mask that it had"),
            ("forward", "the apply is finished; where that fails it is taken back"),
        ],
        help="What becomes of an apply whose process died, when the agent starts again. A rollback is always finished.",
    ),
]
