"""pinner's wheel, installed in a virtual environment outside any checkout."""

import re
import subprocess
import sys
import sysconfig
import zipfile
from importlib.metadata import version
from pathlib import Path

import pytest
from support import archives
from support.system import wheel

pytestmark = pytest.mark.slow("a wheel and an environment for it")

ETC = {
    "health/slurm-health-check",
    "libvirt-qemu-hook",
    "libvirt-strip-pins",
    "pinner-agent.service",
    "pinner-api.service",
    "pinner-api.socket",
    "pinner-nova-listener.service",
    "pinner.conf.sample",
    "sysusers.d/pinner.conf",
    "tmpfiles.d/pinner.conf",
}


@pytest.fixture(scope="module")
def built(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return wheel.wheel(tmp_path_factory.mktemp("wheel"))


@pytest.fixture(scope="module")
def programs(built: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The programs of a virtual environment that has the wheel; its other packages are those of this environment."""
    venv = tmp_path_factory.mktemp("installed") / "venv"
    subprocess.run([sys.executable, "-m", "venv", "--without-pip", venv], check=True)
    subprocess.run(
        [
            sys.executable,
            "-m",
            "pip",
            "--python",
            venv / "bin/python",
            "install",
            "-q",
            "--no-deps",
            "--no-index",
            built,
        ],
        check=True,
    )
    (site,) = venv.glob("lib/python*/site-packages")
    (site / "others.pth").write_text(sysconfig.get_path("purelib"))
    return venv / "bin"


def run(program: Path, *arguments: str, cwd: Path) -> str:
    done = subprocess.run([program, *arguments], cwd=cwd, capture_output=True, text=True, check=False, timeout=120)
    assert done.returncode == 0, done.stderr
    return done.stdout


def names(built: Path) -> set[str]:
    with zipfile.ZipFile(built) as archive:
        return set(archive.namelist())


def test_the_wheel_has_every_file_that_an_installation_needs(built: Path) -> None:
    found = names(built)
    assert {f"pinner/etc/{name}" for name in ETC} <= found
    repository = Path(__file__).parents[3]
    modules = {str(path.relative_to(repository)) for path in repository.glob("pinner/**/*.py")}
    linked = {
        f"pinner/{path.relative_to(repository)}"
        for top in ("api", "migrations")
        for path in repository.glob(f"{top}/**/*.py")
    }
    assert modules | linked <= found
    assert any(re.fullmatch(r"pinner-.*\.dist-info/licenses/LICENSE", name) for name in found)
    assert {name.partition("/")[0] for name in found} == {"pinner", f"pinner-{version('pinner')}.dist-info"}


def test_a_wheel_from_the_sdist_is_the_same(built: Path, tmp_path: Path) -> None:
    sdist = wheel.build(wheel.sources(tmp_path), "sdist")
    archives.unpack(sdist, tmp_path / "sdist")
    (source,) = (tmp_path / "sdist").iterdir()
    assert names(wheel.build(source, "wheel")) == names(built)


def test_the_programs_run_outside_any_checkout(programs: Path, tmp_path: Path) -> None:
    assert run(programs / "pinner", "--version", cwd=tmp_path) == f"pinner {version('pinner')}\n"
    assert "--dry-run" in run(programs / "pinner-manage", "setup-host", "--help", cwd=tmp_path)
    where = run(programs / "python", "-c", "import pinner; print(pinner.__file__)", cwd=tmp_path)
    assert Path(where.strip()).is_relative_to(programs.parent)


@pytest.mark.needs("root")
def test_the_inventory_needs_no_checkout(programs: Path, tmp_path: Path, libvirtd: str) -> None:
    """The first command creates the databases, so the migrations are found."""
    config = tmp_path / "pinner.conf"
    config.write_text(f"[agent]\nstate_dir = {tmp_path}/state\n[libvirt]\nuri = {libvirtd}\n")
    shown = run(programs / "pinner", "inventory", "--sample-seconds", "0", "--config-file", str(config), cwd=tmp_path)
    assert "node" in shown.lower()


@pytest.mark.needs("root")
def test_the_units_start_the_programs_of_the_installation(programs: Path, tmp_path: Path) -> None:
    run(programs / "pinner-manage", "setup-host", "--root", str(tmp_path / "image"), cwd=tmp_path)
    unit = (tmp_path / "image/etc/systemd/system/pinner-agent.service").read_text()
    assert f"ExecStart={programs}/pinner serve --only agent" in unit
    assert (tmp_path / "image/etc/pinner/pinner.conf").read_text().startswith("[DEFAULT]")
