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
        help="Folder to which the audit trail is exported before its old records are deleted from the database. The "
        "API's user must be able to write it; with pinner's systemd units it is a folder below /var/lib/pinner/api. "
        "Where it is set, the agent also writes its old audit records to files, in its own folder. Default: audit "
        "records are never deleted.",
    ),
    cfg.IntOpt(
        "audit_days",
        default=365,
        min=1,
        help="Days that an audit record stays in the database at least, where audit_export is set. An export is made "
        "once half of the records are older.",
    ),
]
