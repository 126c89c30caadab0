from oslo_config import cfg

NAME = "nova"
OPTIONS = [
    cfg.ListOpt(
        "nova_conf",
        default=[],
        help="Nova's configuration files and folders on this host, as nova-compute gets them with --config-file and "
        "--config-dir, in the same order. A later one overrides an earlier one. pinner reads cpu_dedicated_set and "
        "cpu_shared_set from them unless they are set below, and `pinner nova check` checks them. Empty: pinner reads "
        "what nova-compute's own process reads, also in a container. Until pinner has seen it, pinner reads the "
        "files of Debian's package, kolla-ansible, RHOSO or the snap openstack-hypervisor.",
    ),
    cfg.BoolOpt(
        "ignore_nova_conf",
        default=False,
        help="Nova has exactly the CPU sets below on this host, and pinner reads no configuration of Nova. If both are "
        "empty, Nova has none. Without this option, a host with guests of Nova and without any configuration of Nova "
        "gets no plan that can be applied, because its dedicated CPUs are not known.",
    ),
    cfg.StrOpt(
        "cpu_dedicated_set",
        default="",
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
