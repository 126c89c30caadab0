from oslo_config import cfg

NAME = "retention"
OPTIONS = [
    cfg.IntOpt(
        "runs_days",
        default=90,
        min=1,
        help="Days that an ended run is kept. A run that can still be rolled back is always kept.",
    ),
    cfg.IntOpt(
        "plans_days",
        default=30,
        min=1,
        help="Days that a plan or a snapshot is kept that no run, placement or plan refers to.",
    ),
    cfg.StrOpt(
        "audit_export",
        help="Folder to which audit records are exported before they are deleted from the database. The API's user "
        "must be able to write it. Default: audit records are never deleted.",
    ),
    cfg.IntOpt(
        "audit_days",
        default=365,
        min=1,
        help="Days that an audit record stays in the database, where audit_export is set.",
    ),
]
