"""pinner nova install-hooks and remove-hooks: pinner's hook script among those of libvirt."""

from argparse import Namespace
from collections.abc import Callable
from pathlib import Path

from pinner.cli.frame.confirm import agreed, require_answer
from pinner.cli.frame.context import CommandContext
from pinner.cli.frame.output import print_json
from pinner.cli.frame.values import path
from pinner.cli.parser import Commands, add_command
from pinner.render import visible

_INSTALL = """\
libvirt runs the script for each guest. When a guest migrates to this host, the
script removes the pins that pinner has made on the source. When a guest
starts, the script reports it to pinner. It always succeeds: a guest starts and
migrates whether pinner runs or not.

The command needs root. It writes, below /etc/libvirt/hooks, qemu.d/pinner (or
qemu, where libvirt is older than 6.5.0) and pinner-strip-pins, and
/etc/pinner/hook.conf where there is none. It never overwrites a script that is
not pinner's. A second call changes nothing, except that it updates the files
of an older version. For the libvirt of the snap openstack-hypervisor, the
folder is /var/snap/openstack-hypervisor/common/etc/libvirt/hooks."""

_REMOVE = """\
The command needs root. It removes the files of install-hooks. It keeps
hook.conf if the file was changed, and the scripts of others."""

_STATUS = {2: "not root, a script is in the way, bad input, or needs --yes"}


def register(verbs: Commands) -> None:
    """Add the commands to the noun nova."""
    _add(verbs, "install-hooks", _install, "install pinner's hook script for the libvirt of this host", _INSTALL)
    _add(verbs, "remove-hooks", _remove, "remove pinner's hook script for the libvirt of this host", _REMOVE)


def _add(verbs: Commands, name: str, run: Callable[[CommandContext, Namespace], int], summary: str, about: str) -> None:
    parser = add_command(
        verbs,
        name,
        run,
        summary,
        about=about,
        status=_STATUS,
        asks=True,
        examples=[f"pinner nova {name} --dry-run", f"pinner nova {name} --yes"],
    )
    parser.add_argument("--dry-run", action="store_true", help="show the steps, and change nothing")
    parser.add_argument(
        "--root",
        metavar="DIR",
        type=path,
        default=Path("/"),
        help="use the file system below DIR, such as an image (default: /)",
    )
    parser.add_argument(
        "--hooks",
        metavar="DIR",
        type=path,
        help="libvirt's folder of hook scripts, if it is another one, such as /usr/local/etc/libvirt/hooks or the "
        "folder that a container mounts (default: etc/libvirt/hooks below --root, or the folder of the snap "
        "openstack-hypervisor)",
    )


def _install(context: CommandContext, arguments: Namespace) -> int:
    # Imported here for the same reason as in context.open_pinner.
    from pinner.hostsetup.hooks import install_hooks

    return _do(context, arguments, install_hooks, "Install pinner's hook script")


def _remove(context: CommandContext, arguments: Namespace) -> int:
    from pinner.hostsetup.hooks import remove_hooks

    return _do(context, arguments, remove_hooks, "Remove pinner's hook script")


def _do(context: CommandContext, arguments: Namespace, change: Callable[..., None], question: str) -> int:
    from pinner.hostsetup.hook_paths import HookPaths

    folder = arguments.hooks.absolute() if arguments.hooks else None
    paths = HookPaths(arguments.root.absolute(), folder)
    if not arguments.dry_run:
        require_answer(yes=arguments.yes)
        if not agreed(f"{question} in {paths.hooks}?", yes=arguments.yes):
            return 0
    said: list[str] = []
    change(paths, said.append if context.json else _say, dry_run=arguments.dry_run)
    if context.json:
        print_json({"steps": said})
    return 0


def _say(text: str) -> None:
    print(visible(text), flush=True)
