from oslo_config import cfg

NAME = "api"
OPTIONS = [
    cfg.HostAddressOpt(
        "bind", default="127.0.0.1", help="Address to listen on. An address other than loopback needs token_file."
    ),
    cfg.PortOpt("port", default=8077, min=0, help="TCP port to listen on; 0 selects a free port and prints it."),
    cfg.StrOpt(
        "token_file",
        help="File of accepted bearer tokens, one `name:token` per line; the audit trail shows the name as the actor. "
        "Without this file, calls need no token, and bind must be a loopback address.",
    ),
    cfg.StrOpt(
        "user",
        default="pinner",
        help="Unprivileged user of the API process if root starts `pinner serve`. It must be pinner's own: root and "
        "nobody are refused. `pinner-manage setup-host` creates the default user.",
    ),
    cfg.StrOpt("group", default="pinner", help="Group whose members may connect to the API's Unix socket."),
    cfg.IntOpt(
        "max_body_kib",
        default=256,
        min=1,
        help="Largest request body in KiB. The server answers a larger body with status 413.",
    ),
]
