from oslo_config import cfg

NAME = "api"
OPTIONS = [
    cfg.HostAddressOpt(
        "bind", default="127.0.0.1", help="Address to listen on. Another than loopback needs token_file."
    ),
    cfg.PortOpt("port", default=8077, min=0, help="TCP port to listen on; 0 takes a free one and prints it."),
    cfg.StrOpt(
        "token_file",
        help="File of accepted bearer tokens, one `name:token` a line (name becomes the actor of the audit trail). "
        "Without it calls need no token and only a loopback address may be bound.",
    ),
    cfg.StrOpt(
        "user", default="nobody", help="Unprivileged user that the API runs as when pinner serve starts as root."
    ),
    cfg.IntOpt(
        "max_body_kib", default=256, min=1, help="Largest request body in KiB; a larger one is answered with 413."
    ),
]
