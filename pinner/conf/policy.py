from oslo_config import cfg

NAME = "policy"
OPTIONS = [
    cfg.FloatOpt(
        "resync_seconds",
        default=60.0,
        min=1.0,
        help="Seconds between two looks at a host that has a policy, when nothing is heard of it: the net under the "
        "events, after which a drift is found at once.",
    ),
    cfg.FloatOpt(
        "measure_seconds",
        default=300.0,
        min=10.0,
        help="Seconds between two measurements of CPU use (each [host] sample_seconds long), by which the policy finds "
        "processes that became busy.",
    ),
    cfg.IntOpt(
        "migration_seconds",
        default=3600,
        min=1,
        help="How long a guest that is told to be leaving for another host (POST /v1/events/guest-leaving) is left "
        "alone, when nobody tells that it stayed or is gone.",
    ),
]
