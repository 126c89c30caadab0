from oslo_config import cfg

NAME = "api"
OPTIONS = [
    cfg.StrOpt(
        "socket",
        sample_default="/run/pinner/api.sock",
        help="Path of the API's Unix socket, in a folder that only root can write. Its callers need no token: the "
        "members of `group` may connect. Default: /run/pinner/api.sock if state_dir is /var/lib/pinner, else api.sock "
        "in state_dir.",
    ),
    cfg.StrOpt(
        "group",
        default="pinner",
        help="Group whose members may connect to the socket, if root starts `pinner serve`. A member is administrator "
        "of pinner.",
    ),
    cfg.StrOpt(
        "bind",
        default="",
        help="Address or host name to listen on over TCP, too; every call over TCP needs a token. Default: the API "
        "listens on its Unix socket only.",
    ),
    cfg.PortOpt(
        "port", default=8077, min=0, help="TCP port, used where bind is set; 0 selects a free port and prints it."
    ),
    cfg.StrOpt(
        "token_file",
        help="File of accepted bearer tokens, one `name:token` per line; the audit trail shows the name as the actor. "
        "Without this file, every call over TCP is refused.",
    ),
    cfg.StrOpt(
        "user",
        default="pinner",
        help="Unprivileged user of the API process if root starts `pinner serve`. It must be pinner's own: root and "
        "nobody are refused. `pinner-manage setup-host` creates the default user.",
    ),
    cfg.IntOpt(
        "max_body_kib",
        default=256,
        min=1,
        help="Largest request body in KiB. The server answers a larger body with status 413.",
    ),
]
