"""Reads nova.conf with oslo.config, as Nova itself does, including its ``.d`` folder and deprecated option names.

Sources: nova/conf/compute.py and notifications.py; oslo_messaging/notify/notifier.py.
"""

import re
from collections.abc import Sequence
from functools import lru_cache
from pathlib import Path

from oslo_config import cfg

from pinner.model.nova import NovaConf

DEFAULT = (Path("/etc/nova/nova.conf"),)
"""The path of Nova's packages. Only this file may be missing: then Nova does not run on the host."""

_OPTIONS: dict[str | None, list[cfg.Opt]] = {
    None: [cfg.StrOpt("vcpu_pin_set", default="")],
    "compute": [cfg.StrOpt("cpu_dedicated_set", default=""), cfg.StrOpt("cpu_shared_set", default="")],
    "notifications": [
        cfg.StrOpt("notification_format", default="unversioned", deprecated_group="DEFAULT"),
        cfg.ListOpt("versioned_notifications_topics", default=["versioned_notifications"]),
    ],
    "oslo_messaging_notifications": [
        cfg.MultiStrOpt(
            "driver", default=[], deprecated_opts=[cfg.DeprecatedOpt("notification_driver", group="DEFAULT")]
        )
    ],
}


def read(files: Sequence[Path]) -> NovaConf | None:
    """The options of all files; a later file overrides an earlier one. None where DEFAULT does not exist.

    A file that cannot be read or parsed is reported in ``error`` and not raised, so that a snapshot is still possible.
    """
    if tuple(files) == DEFAULT and not DEFAULT[0].exists():
        return None
    return _read(tuple(files), tuple(map(_stamps, [*files, *_folders(files)])))


@lru_cache(maxsize=4)
def _read(files: tuple[Path, ...], _stamps_now: tuple[object, ...]) -> NovaConf:
    """Cached until a file changes, because a policy controller reads the configuration often."""
    names = tuple(map(str, files))
    conf = cfg.ConfigOpts()
    for group, options in _OPTIONS.items():
        conf.register_opts(options, group=group)
    try:
        conf(
            [],
            default_config_files=list(names),
            default_config_dirs=list(map(str, _folders(files))),
            use_env=False,
        )
        return NovaConf(
            files=names,
            dedicated=conf.compute.cpu_dedicated_set,
            shared=conf.compute.cpu_shared_set,
            pin_set=conf.vcpu_pin_set,
            format=conf.notifications.notification_format,
            topics=tuple(conf.notifications.versioned_notifications_topics),
            drivers=tuple(conf.oslo_messaging_notifications.driver),
        )
    except cfg.ConfigFileParseError as error:
        # oslo.config quotes the wrong line last. Nova's user can put a symlink to any file here, and the agent is root.
        return NovaConf(files=names, error=re.split(r""": ['"]""", str(error), maxsplit=1)[0])
    except (cfg.Error, UnicodeDecodeError) as error:
        return NovaConf(files=names, error=str(error))


def _folders(files: Sequence[Path]) -> list[Path]:
    return [folder for file in files if (folder := file.with_name(f"{file.name}.d")).is_dir()]


def _stamps(path: Path) -> tuple[object, ...]:
    """Inode, time and size of the file, or of the folder and its files: they change when a file is changed."""
    try:
        found = [path.stat(), *(each.stat() for each in sorted(path.glob("*")))]
    except OSError as error:
        return (error.errno,)
    return tuple((each.st_ino, each.st_mtime_ns, each.st_size) for each in found)
