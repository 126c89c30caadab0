from oslo_config import cfg

NAME = "nova"
OPTIONS = [
    cfg.ListOpt(
        "nova_conf",
        default=["/etc/nova/nova.conf"],
        help="Nova's configuration files on this host: those that nova-compute reads, in the same order. A later file "
        "overrides an earlier one. pinner reads cpu_dedicated_set and cpu_shared_set from them unless they are set "
        "below, and `pinner nova check` checks them. If the default file is missing, the host has no Nova.",
    ),
    cfg.StrOpt(
        "cpu_dedicated_set",
        default="",
        deprecated_group="planning",
        help="CPUs that Nova dedicates to guests on this host; pinner never allocates them. A value here overrides "
        "nova.conf, for hosts where pinner cannot read nova.conf.",
    ),
    cfg.StrOpt(
        "cpu_shared_set",
        default="",
        help="CPUs on which Nova runs the vCPUs of all other guests; pinner's vCPU pools are inside this set. A value "
        "here overrides nova.conf.",
    ),
]
