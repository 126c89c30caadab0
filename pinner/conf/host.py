from oslo_config import cfg

from pinner.model.snapshot import MAX_SAMPLE_SECONDS

NAME = "host"
OPTIONS = [
    cfg.StrOpt("name", help="This host's name in pinner; by default the machine's host name."),
    cfg.FloatOpt(
        "sample_seconds",
        default=5.0,
        min=0.0,
        max=MAX_SAMPLE_SECONDS,
        help="Seconds between the two samples of CPU use.",
    ),
    cfg.StrOpt(
        "root", default="/", help="Folder that holds proc/ and sys/: / for this machine, another for a captured one."
    ),
]
