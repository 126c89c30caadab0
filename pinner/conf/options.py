"""The options of pinner.conf, a list for each group, and those of oslo.messaging that pinner reads, too."""

from ipaddress import ip_address

from oslo_config import cfg, types

from pinner.model.cpuset import MAX_CPUS
from pinner.model.machine.process import STANDING_SECONDS
from pinner.model.plan.objective import MOST_WEIGHT, TERMS
from pinner.model.snapshot import MAX_SAMPLE_SECONDS

ABSOLUTE_PATH = r"^(/|\Z)"
HOST_NAME = r"^(?!\.{1,2}\Z)[^/\s\x00-\x1f\x7f]{0,255}\Z"
MEANINGS = {
    # Each process may have another working folder.
    ABSOLUTE_PATH: "an absolute path",
    # The name is a part of the paths of the REST API.
    HOST_NAME: "a name of at most 255 characters, without / and spaces",
}

MOST_PINGED = 64


class _GuestAddress(types.String):
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
        "its CPUs out of every set at once, also while the process is idle. For other processes it does so only with "
        "load, or if the process runs as root or has CAP_SYS_NICE, and only once the process has been running for "
        f"{STANDING_SECONDS:g} s or as long as its service. Any user can give a process any name: prefer user:NAME.",
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
        help="The Unix socket of Open vSwitch's database. pinner reads pmd-cpu-mask from it, and allocates none of "
        "these CPUs; and dpdk-lcore-mask, whose cores housekeeping takes first. If nothing listens there, the host has "
        "no Open vSwitch.",
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
        help="Whether pinner asks the QEMU guest agents of running guests for the settings of their network, at each "
        "snapshot. A plan changes the inside of guests only with this option, and with `--with guest-rps` or another "
        "setting whose name begins with guest-.",
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

API = [
    cfg.StrOpt(
        "socket",
        regex=ABSOLUTE_PATH,
        sample_default="/run/pinner/api.sock",
        help="Path of the API's Unix socket, in a folder that only root can write. Its callers need no token: the "
        "members of `group` may connect. Default: /run/pinner/api.sock if state_dir is /var/lib/pinner, else api.sock "
        "in state_dir.",
    ),
    cfg.StrOpt(
        "group",
        default="pinner",
        help="Group whose members may connect to the socket, if root starts `pinner serve`: its name or number. A "
        "member is administrator of pinner.",
    ),
    cfg.StrOpt(
        "bind",
        default="",
        help="Address or host name to listen on over TCP, too; every call over TCP needs a token or a client "
        "certificate. Default: the API listens on its Unix socket only.",
    ),
    cfg.PortOpt(
        "port", default=8077, min=0, help="TCP port, used where bind is set; 0 selects a free port and prints it."
    ),
    cfg.DictOpt(
        "tls_client_roles",
        default={},
        help="Roles of TLS client certificates by their common name, such as `ceilometer:reader, deploy:admin`. A "
        "certificate without a role is refused. The audit trail shows the common name as the actor.",
    ),
    cfg.ListOpt(
        "trusted_proxies",
        default=[],
        help="IP addresses and networks of reverse proxies, such as `10.0.0.7, 10.1.0.0/24`. Only from them pinner "
        "believes the header X-Forwarded-For, and takes the last address there that is no trusted proxy as the "
        "client's. A proxy passes on each client's own token. It must not connect to the Unix socket, where every "
        "caller is an administrator.",
    ),
    cfg.StrOpt(
        "user",
        default="pinner",
        help="Unprivileged user of the API process if root starts `pinner serve`: its name or number. A number needs "
        "no account; such a user is in the group `group`. The user must be pinner's own: root and nobody are refused. "
        "`pinner-manage setup-host` creates the default user.",
    ),
    cfg.StrOpt(
        "tls_certificate",
        default="",
        help="File with the certificate of the TCP address, followed by the certificates between it and the root, in "
        "PEM. With it the TCP address speaks TLS only, version 1.2 or later. Read once, when the server starts.",
    ),
    cfg.StrOpt(
        "tls_key",
        default="",
        help="File with the private key of tls_certificate, in PEM and without a passphrase. Only root needs to read "
        "it. By default the key is in the file of tls_certificate.",
    ),
    cfg.StrOpt(
        "tls_client_ca",
        default="",
        help="File with the authorities of client certificates, in PEM. A client that shows a certificate of another "
        "authority is refused.",
    ),
    cfg.BoolOpt("tls_client_required", default=False, help="Refuse TLS clients that show no certificate."),
]

DATABASE: list[cfg.Opt] = [
    cfg.StrOpt(
        "connection",
        secret=True,
        sample_default="sqlite:////var/lib/pinner/api/pinner.sqlite",
        help="SQLAlchemy URL of the database of snapshots, plans, runs and the audit trail. Default: an SQLite file "
        "below [agent] state_dir.",
    ),
]

MOST_SECONDS = 86400.0
MOST_MIGRATION_SECONDS = 30 * 86400
POLICY = [
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

OBJECTIVE: list[cfg.Opt] = [
    cfg.FloatOpt(
        kind.name,
        default=kind.weight,
        min=0.0,
        max=MOST_WEIGHT,
        help=f"Weight of the term {kind.name} in tier {kind.tier} of the objective: {kind.counts}, in {kind.unit}. A "
        "request can set another weight. 0: the term does not count.",
    )
    for kind in TERMS
]

MOST_DAYS = 36_500
RETENTION = [
    cfg.IntOpt(
        "runs_days",
        default=90,
        min=1,
        max=MOST_DAYS,
        help="Days that an ended run is kept. A run that can still be rolled back is always kept.",
    ),
    cfg.IntOpt(
        "plans_days",
        default=30,
        min=1,
        max=MOST_DAYS,
        help="Days that a plan or a snapshot is kept that no run, placement or plan refers to.",
    ),
    cfg.StrOpt(
        "audit_export",
        help="Folder to which the audit trail is exported before its old records are deleted from the database. The "
        "API's user must be able to write it; with pinner's systemd units it is a folder below /var/lib/pinner/api. "
        "Where it is set, the agent also writes its old audit records to files, in its own folder. Default: audit "
        "records are never deleted.",
    ),
    cfg.IntOpt(
        "audit_days",
        default=365,
        min=1,
        max=MOST_DAYS,
        help="Days that an audit record stays in the database at least, where audit_export is set. An export is made "
        "once half of the records are older.",
    ),
]

NOVA_LISTENER = [
    cfg.StrOpt(
        "transport_url",
        secret=True,
        help="URL of the message broker, as in Nova's [DEFAULT] transport_url: rabbit://user:password@host:5672/. "
        "Other options of oslo.messaging, such as TLS in [oslo_messaging_rabbit], are also read from this file.",
    ),
    cfg.ListOpt(
        "topics",
        default=["versioned_notifications"],
        help="Topics of Nova's versioned notifications (its [notifications] versioned_notifications_topics).",
    ),
    cfg.ListOpt(
        "unversioned_topics",
        default=["notifications"],
        help="Topics of Nova's unversioned notifications (its [oslo_messaging_notifications] topics). The listener "
        "reads them, from its own queue, only to warn of a nova-compute that sends no versioned ones. Leave it empty "
        "to spare the broker these messages.",
    ),
    cfg.StrOpt(
        "pool",
        default="pinner",
        help="Name of pinner's own queue, which gets a copy of every message, so that other listeners on the same "
        "topics lose no message. Leave it empty if no other program listens on these topics.",
    ),
    cfg.StrOpt("exchange", default="nova", help="Exchange of the notifications: Nova's control_exchange."),
    cfg.StrOpt(
        "server",
        default="unix:/run/pinner/api.sock",
        help="URL of the pinner server that gets the events: its Unix socket, where the listener's user must be in the "
        "group of the socket, or http://address:port. If each host has its own server, write {host} for Nova's name of "
        "the host: http://{host}:8077. [host] name on that host must be the same name.",
    ),
    cfg.StrOpt(
        "token_file",
        help="File that contains only the server's bearer token of the role hook, which a server requires over http:// "
        "and https://. If each host has its own server, and so its own tokens, write {host} for the name of the host: "
        "/etc/pinner/tokens/{host}.",
    ),
]

RABBIT_GROUP = "oslo_messaging_rabbit"
RABBIT: list[cfg.Opt] = [
    cfg.BoolOpt("amqp_durable_queues", default=False),
    cfg.BoolOpt("rabbit_quorum_queue", default=False),
]
"""oslo.messaging's options about the kind of queues, for programs without that library."""
