from oslo_config import cfg

from pinner.conf.patterns import ABSOLUTE_PATH

NAME = "api"
OPTIONS = [
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
