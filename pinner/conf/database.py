from oslo_config import cfg

NAME = "database"
OPTIONS = [
    cfg.StrOpt(
        "connection",
        default="sqlite:////var/lib/pinner/pinner.sqlite",
        secret=True,
        help="SQLAlchemy URL of the database of plans, runs and the audit trail.",
    ),
]
