from oslo_config import cfg

NAME = "nova_listener"
OPTIONS = [
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
