import subprocess
import sys
from pathlib import Path

from pinner import conf

REPOSITORY = Path(__file__).parents[2]


def test_the_committed_sample_matches_the_options(tmp_path: Path) -> None:
    made = tmp_path / "sample"
    generator = Path(sys.executable).with_name("oslo-config-generator")
    config = REPOSITORY / "etc/pinner/sample-generator.conf"
    subprocess.run([generator, "--config-file", config, "--output-file", made], check=True, cwd=tmp_path)
    assert made.read_text() == (REPOSITORY / "etc/pinner/pinner.conf.sample").read_text()


def test_every_option_has_a_help_text() -> None:
    options = [option for _, group in conf.list_opts() for option in group]
    assert options
    assert all(option.help and option.help.endswith(".") for option in options)


def test_a_file_sets_an_option(tmp_path: Path) -> None:
    file = tmp_path / "pinner.conf"
    file.write_text("[libvirt]\nuri = test:///default\n")
    assert conf.load([file]).libvirt.uri == "test:///default"
    assert conf.load([]).libvirt.uri == "qemu:///system"
