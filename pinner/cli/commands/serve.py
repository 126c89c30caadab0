"""pinner serve: the API, the agent and the database of one host in one command."""

from argparse import Namespace

from pinner.cli.frame.context import CommandContext
from pinner.cli.frame.parser import Commands, Parser, add_command
from pinner.cli.frame.values import port
from pinner.model.errors import Invalid


def register(commands: Commands) -> None:
    parser = add_command(
        commands,
        "serve",
        serve,
        "serve this host over REST until Ctrl-C",
        about="The command runs the API, the agent and the database of this host, and\n"
        "maintains the host's policy. It needs no message broker and no other server. It\n"
        "listens on a Unix socket ([api] socket), and over TCP only with --bind, --port\n"
        "or [api] bind. Every call over TCP needs a token.",
        status={0: "ended by Ctrl-C or SIGTERM", 130: "interrupted by Ctrl-C before it served"},
        examples=[
            "pinner serve",
            "pinner serve --port 0",
            "pinner serve --only agent",
            "pinner serve --config-file pinner.conf --bind 192.0.2.7",
        ],
    )
    parser.add_argument("--bind", metavar="ADDRESS", help="also listen on this address (default: [api] bind, none)")
    parser.add_argument(
        "--port",
        metavar="N",
        type=port,
        help="TCP port; 0 selects a free port (default: [api] port, 8077). Without an address: of 127.0.0.1",
    )
    _add_only(parser)


def _add_only(parser: Parser) -> None:
    parser.add_argument(
        "--only",
        choices=("agent", "api"),
        help="serve one part: the agent as root, or the API as [api] user on the sockets that systemd passes to it "
        "and on the TCP address; for one systemd unit each (default: both parts)",
    )


def serve(context: CommandContext, arguments: Namespace) -> int:
    if context.url:
        raise Invalid("--url", context.url, "no --url and no PINNER_URL: serve works on this host only")
    # Imported here for the same reason as in context.open_pinner.
    from pinner.server import main

    main.serve(context.config_files, arguments.bind, arguments.port, arguments.only)
    return 0
