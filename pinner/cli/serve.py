"""pinner serve: the API, the agent and the database of one host in one command."""

from argparse import Namespace

from pinner.cli.context import Context
from pinner.cli.parser import Commands, add_command
from pinner.cli.values import port
from pinner.model.errors import Invalid


def register(commands: Commands) -> None:
    """Add the command."""
    parser = add_command(
        commands,
        "serve",
        serve,
        "serve this host over REST until Ctrl-C",
        about="Needs no broker and no other server. An address beyond loopback needs a token file (see the\n"
        "configuration's [api] token_file).",
        examples=["pinner serve", "pinner serve --port 0", "pinner serve --config-file pinner.conf --bind 192.0.2.7"],
    )
    parser.add_argument("--bind", metavar="ADDRESS", help="address to listen on (default: the configured one)")
    parser.add_argument("--port", metavar="N", type=port, help="port; 0 takes a free one and prints it")


def serve(context: Context, arguments: Namespace) -> int:
    """Serve until interrupted."""
    if context.url:
        raise Invalid("--url", context.url, "left out (PINNER_URL too): serve is for this host")
    # Imported here for the same reason as in context.open_pinner.
    from pinner.server import main

    main.serve(context.config_files, arguments.bind, arguments.port)
    return 0
