"""What `pinner-manage setup-host` installs: its paths and the content of its files."""

import sys
from dataclasses import dataclass
from importlib.resources import files
from pathlib import Path

ACCOUNT = "pinner"
"""The user of the API's unit, and the group of its socket."""
MARK = "# Installed by pinner-manage setup-host; removed by pinner-manage remove-host.\n"
"""The first line of every installed file except the configuration."""
ENABLED = ("pinner-agent.service", "pinner-api.socket", "pinner-api.service")
"""The administrator starts the listener, once it is configured."""
UNITS = (*ENABLED, "pinner-nova-listener.service")
CONFIG_MODE = 0o640
"""It may contain passwords: the group may read it."""


@dataclass(frozen=True)
class Layout:
    root: Path = Path("/")
    programs: Path = Path(sys.prefix, "bin")
    """They are those of this virtual environment."""

    @property
    def is_image(self) -> bool:
        return self.root != Path("/")

    @property
    def config_folder(self) -> Path:
        return self.root / "etc/pinner"

    @property
    def config(self) -> Path:
        return self.config_folder / "pinner.conf"

    @property
    def sample(self) -> str:
        return packaged("pinner.conf.sample")

    @property
    def sysusers(self) -> Path:
        return self.root / "etc/sysusers.d/pinner.conf"

    @property
    def tmpfiles(self) -> Path:
        return self.root / "etc/tmpfiles.d/pinner.conf"

    @property
    def state(self) -> Path:
        return self.root / "var/lib/pinner"

    @property
    def sockets(self) -> Path:
        return self.root / "run/pinner"

    def unit(self, name: str) -> Path:
        return self.root / "etc/systemd/system" / name

    def installed(self) -> dict[Path, str]:
        programs = f"ExecStart={self.programs}/"
        units = {self.unit(name): packaged(name).replace("ExecStart=/usr/bin/", programs) for name in UNITS}
        declared = {
            self.sysusers: packaged("sysusers.d/pinner.conf"),
            self.tmpfiles: packaged("tmpfiles.d/pinner.conf"),
        }
        return {path: f"{MARK}{text}" for path, text in (declared | units).items()}


def packaged(name: str) -> str:
    return files("pinner").joinpath("etc", name).read_text("utf-8")
