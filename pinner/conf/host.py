from oslo_config import cfg

from pinner.conf.patterns import HOST_NAME
from pinner.model.cpuset import MAX_CPUS
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
    cfg.ListOpt(
        "affinity_owners",
        default=[],
        help="Names of processes, and of users as user:NAME, whose restricted affinity (taskset, CPUAffinity=) keeps "
        "its CPUs out of every set also while the process is idle. For other processes it does so only with load, or "
        "if the process runs as root or has CAP_SYS_NICE. Any user can give a process any name: prefer user:NAME.",
    ),
    cfg.IntOpt(
        "minimum_cores",
        default=1,
        min=1,
        max=MAX_CPUS,
        help="The fewest cores of each NUMA node that housekeeping, emulators and vCPUs get each, however many CPUs "
        "processes are restricted to. A plan can ask for another minimum.",
    ),
    cfg.StrOpt(
        "ovsdb",
        default="/var/run/openvswitch/db.sock",
        help="The Unix socket of Open vSwitch's database. pinner reads pmd-cpu-mask and dpdk-lcore-mask from it, and "
        "allocates none of these CPUs. If nothing listens there, the host has no Open vSwitch.",
    ),
]
