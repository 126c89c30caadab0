from oslo_config import cfg

NAME = "policy"
MOST_SECONDS = 86400.0
MOST_MIGRATION_SECONDS = 30 * 86400
OPTIONS = [
    cfg.FloatOpt(
        "resync_seconds",
        default=60.0,
        min=1.0,
        max=MOST_SECONDS,
        help="Seconds between two full checks (resyncs) of a host that has a policy, while no event arrives. Events "
        "report most drift at once; a resync finds drift that no event reported.",
    ),
    cfg.FloatOpt(
        "measure_seconds",
        default=300.0,
        min=10.0,
        max=MOST_SECONDS,
        help="Seconds between two measurements of CPU use, each of [host] sample_seconds. The policy uses them to find "
        "processes that became busy.",
    ),
    cfg.IntOpt(
        "migration_seconds",
        default=3600,
        min=1,
        max=MOST_MIGRATION_SECONDS,
        help="Seconds for which pinner does not change a guest that is about to leave for another host (POST "
        "/v1/events/guest-leaving), unless an event reports earlier that the guest stayed or is gone.",
    ),
    cfg.FloatOpt(
        "repack_mark",
        default=8.0,
        min=0.0,
        help="The pressure from which on a re-pack of a host is considered: the weighted terms of the objective for "
        "extra nodes, extra level-3 caches, shared cores, and remote memory in GiB x distance, as far as the policy's "
        "strategy asks for them.",
    ),
    cfg.FloatOpt(
        "repack_gain",
        default=0.25,
        min=0.0,
        max=1.0,
        help="The least gain of a re-pack that is proposed, as a share of the value of the objective's first tier that "
        "it changes.",
    ),
]
