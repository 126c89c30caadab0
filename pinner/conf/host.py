from oslo_config import cfg

from pinner.conf.patterns import HOST_NAME
from pinner.model.snapshot import MAX_SAMPLE_SECONDS

NAME = "host"
OPTIONS = [
    cfg.StrOpt("name", regex=HOST_NAME, help="Name of this host in pinner. Default: the machine's host name."),
    cfg.FloatOpt(
        "sample_seconds",
        default=5.0,
        min=0.0,
        max=MAX_SAMPLE_SECONDS,
        help="Seconds between the two samples of a measurement of CPU use.",
    ),
]
