"""The options of a host and its agent: [agent], [host], [libvirt] and [nova]."""

from ipaddress import ip_address

from oslo_config import cfg, types

from pinner.conf.checks import ABSOLUTE_PATH, HOST_NAME
from pinner.model.cpuset import MAX_CPUS
from pinner.model.snapshot import MAX_SAMPLE_SECONDS

MOST_PINGED = 64


class _GuestAddress(types.String):
    """GUEST=ADDRESS."""

    def __call__(self, value: object) -> str:
        text = str(super().__call__(value))
        name, _, address = text.rpartition("=")
        if not name:
            raise ValueError(f"{text!r} is not GUEST=ADDRESS")
        ip_address(address)
        return text


AGENT = [
    cfg.StrOpt(
        "state_dir",
        regex=ABSOLUTE_PATH,
        sample_default="/var/lib/pinner",
        help="Directory of the agent's journal and of the default database. The journal records every change that the "
        "agent makes to this host, so that a change can be undone without a server. Default: /var/lib/pinner for root, "
        "~/.local/state/pinner for other users.",
    ),
    cfg.StrOpt(
        "socket",
        regex=ABSOLUTE_PATH,
        sample_default="/run/pinner/agent.sock",
        help="Unix socket of the agent's process. Only [api] user may connect, and only root may write in the folder. "
        "Default: /run/pinner/agent.sock if state_dir is /var/lib/pinner, else agent.sock in state_dir.",
    ),
    cfg.StrOpt(
        "recover",
        default="back",
        choices=[
            ("back", "undo the apply: each thread gets the affinity that it had before"),
            ("forward", "finish the apply; undo it if a change fails"),
        ],
        help="What the agent does, when it starts, with an apply whose process died. The agent always finishes a "
        "rollback whose process died.",
    ),
    cfg.BoolOpt(
        "keep_measures",
        default=True,
        help="Whether the agent of a server measures run delay, CPU use and drops of the guests and the host every 5 "
        "seconds, and keeps them for 31 days in state_dir: about 0.4 MiB for each guest.",
    ),
    cfg.ListOpt(
        "pinged_guests",
        item_type=_GuestAddress(),
        default=[],
        sample_default=["web-1=192.0.2.7"],
        help="Guests that the agent pings once a second from this host, by name or UUID, each with its IPv4 or IPv6 "
        f"address; the first {MOST_PINGED} of them. The round trips and the loss are measures then. Nothing is known "
        "of a guest that does not answer pings.",
    ),
]

HOST = [
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

LIBVIRT = [
    cfg.StrOpt("uri", default="qemu:///system", help="libvirt connection URI of this host."),
    cfg.FloatOpt(
        "call_timeout",
        default=10.0,
        min=0.1,
        max=3600.0,
        help="Seconds that pinner waits for a libvirt call about a guest. If QEMU or another job delays a change of "
        "the guest for longer, the change fails, and pinner waits as long once more to undo it. pinner waits six times "
        "as long for a call about the whole host, and half as long for libvirtd to come back after a restart. After "
        "a tenth of this time without a list of the guests, it reads them one by one.",
    ),
    cfg.BoolOpt(
        "guest_agents",
        default=False,
        help="Whether pinner asks the QEMU guest agents of running guests for their receive packet steering (RPS), at "
        "each snapshot. A plan changes the inside of guests only with this option and `--with guest-rps`.",
    ),
]

NOVA = [
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
