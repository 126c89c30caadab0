"""The options of a server: [api], [database], [policy], [objective], [retention] and [nova_listener]."""

from oslo_config import cfg

from pinner.conf.checks import ABSOLUTE_PATH
from pinner.model.plan.objective import MOST_WEIGHT, TERMS

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

RETENTION = [
    cfg.IntOpt(
        "runs_days",
        default=90,
        min=1,
        help="Days that an ended run is kept. A run that can still be rolled back is always kept.",
    ),
    cfg.IntOpt(
        "plans_days",
        default=30,
        min=1,
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
