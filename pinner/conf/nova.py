from oslo_config import cfg

NAME = "nova"
OPTIONS = [
    cfg.ListOpt(
        "nova_conf",
        default=["/etc/nova/nova.conf"],
        help="Nova's configuration files on this host, as nova-compute is given them; the later ones win. From them "
        "pinner takes cpu_dedicated_set and cpu_shared_set where they are not set here, and `pinner nova check` all "
        "that it looks at. The default file may be missing: then the host has no Nova.",
    ),
    cfg.StrOpt(
        "cpu_dedicated_set",
        default="",
        deprecated_group="planning",
        help="CPUs that Nova dedicates to guests on this host, which pinner never hands out. Set here, it wins over "
        "nova.conf: for hosts where pinner cannot read that.",
    ),
    cfg.StrOpt(
        "cpu_shared_set",
        default="",
        help="CPUs that Nova keeps the vCPUs of all other guests on; pinner's pools lie inside them. Set here, it wins "
        "over nova.conf.",
    ),
]
