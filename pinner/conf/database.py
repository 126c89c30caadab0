from oslo_config import cfg

NAME = "database"
OPTIONS = [
    cfg.StrOpt(
        "connection",
        secret=True,
        sample_default="sqlite:////var/lib/pinner/api/pinner.sqlite",
        help="SQLAlchemy URL of the database of plans, runs and the audit trail. By default SQLite below [agent] "
        "state_dir.",
    ),
]
