from oslo_config import cfg

NAME = "policy"
OPTIONS = [
    cfg.FloatOpt(
        "resync_seconds",
        default=60.0,
        min=1.0,
        help="Seconds between two full checks (resyncs) of a host that has a policy, while no event arrives. Events "
        "report most drift at once; a resync finds drift that no event reported.",
    ),
    cfg.FloatOpt(
        "measure_seconds",
        default=300.0,
        min=10.0,
        help="Seconds between two measurements of CPU use, each of [host] sample_seconds. The policy uses them to find "
        "processes that became busy.",
    ),
    cfg.IntOpt(
        "migration_seconds",
        default=3600,
        min=1,
        help="Seconds for which pinner does not change a guest that is about to leave for another host (POST "
        "/v1/events/guest-leaving), unless an event reports earlier that the guest stayed or is gone.",
    ),
]
