from oslo_config import cfg

NAME = "planning"
OPTIONS = [
    cfg.StrOpt(
        "cpu_dedicated_set",
        default="",
        help="CPUs that Nova dedicates to guests on this host, as in nova.conf [compute]; pinner never hands them out.",
    ),
]
