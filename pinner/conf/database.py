from oslo_config import cfg

NAME = "database"
OPTIONS = [
    cfg.StrOpt(
        "connection",
        secret=True,
        sample_default="sqlite:////var/lib/pinner/api/pinner.sqlite",
        help="SQLAlchemy URL of the database of snapshots, plans, runs and the audit trail. Default: an SQLite file "
        "below [agent] state_dir.",
    ),
]
