from oslo_config import cfg

NAME = "nova_listener"
OPTIONS = [
    cfg.StrOpt(
        "transport_url",
        secret=True,
        help="The message broker's URL, as in Nova's [DEFAULT] transport_url: rabbit://user:password@host:5672/. What "
        "else oslo.messaging knows of it (TLS: [oslo_messaging_rabbit]) is read from this file, too.",
    ),
    cfg.ListOpt(
        "topics",
        default=["versioned_notifications"],
        help="Topics of Nova's versioned notifications (its [notifications] versioned_notifications_topics).",
    ),
    cfg.StrOpt(
        "pool",
        default="pinner",
        help="Name of a queue of pinner's own, which gets a copy of every message, so that none is taken from anybody "
        "who listens to the same topics. Empty for topics that nobody else listens to.",
    ),
    cfg.StrOpt("exchange", default="nova", help="The exchange of the notifications: Nova's control_exchange."),
    cfg.StrOpt(
        "server",
        default="http://127.0.0.1:8077",
        help="URL of the pinner server to be told. Where each host has one of its own, {host} stands for the name that "
        "Nova has for the host: http://{host}:8077. pinner must know the host by that name ([host] name).",
    ),
    cfg.StrOpt("token_file", help="File that holds the server's bearer token, where it wants one, and nothing else."),
]
