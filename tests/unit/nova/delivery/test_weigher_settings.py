"""The weigher's settings file."""

from pathlib import Path

import pytest

from pinner.nova import weigher_conf
from pinner.nova.delivery import host_rooms
from pinner.nova.weigher_conf import Settings, SettingsError

NOVA = Path(host_rooms.__file__).parents[1]


def write(folder: Path, text: str) -> str:
    file = folder / "weigher.conf"
    file.write_text(text)
    return str(file)


def test_the_sample_settings_are_valid():
    sample = NOVA.parent / "etc/weigher.conf"
    assert weigher_conf.read_settings(str(sample)).server == "http://{host}:8077"


def test_the_settings(tmp_path):
    text = "[weigher]\nserver = https://{host}:1\ntimeout = 0.2\nmultiplier = -2   # avoid\nca_file = /a%b\n"
    expected = Settings("https://{host}:1", timeout=0.2, multiplier=-2.0, ca_file="/a%b")
    assert weigher_conf.read_settings(write(tmp_path, text)) == expected


@pytest.mark.parametrize(
    ("text", "why"),
    [
        ("", "the section .weigher. is missing"),
        ("server = x\n", "no section headers"),
        ("[weigher]\n", "server is not http"),
        ("[weigher]\nserver = ftp://a\n", "server is not http"),
        ("[weigher]\nserver = http://a\ntimeout = 31\n", "timeout = '31' is not a number from 0 to 30"),
        ("[weigher]\nserver = http://a\ntimeout = nan\n", "timeout = 'nan'"),
        ("[weigher]\nserver = http://a\nmax_age = soon\n", "max_age = 'soon'"),
        ("[weigher]\nserver = http://a\ntimout = 1\n", "timout is unknown; valid are server"),
        ("[weigher]\nserver = http://a\nserver = http://b\n", "already exists"),
        ("[weigher]\nserver = http://{host}\ntoken_file = /t\n", "token_file needs {host}, too"),
    ],
)
def test_wrong_settings(tmp_path, text, why):
    with pytest.raises(SettingsError, match=why) as raised:
        weigher_conf.read_settings(write(tmp_path, text))
    assert "weigher.conf" in str(raised.value)


def test_settings_that_cannot_be_read(tmp_path):
    with pytest.raises(SettingsError, match="No such file"):
        weigher_conf.read_settings(str(tmp_path / "none"))
    with pytest.raises(SettingsError, match="directory"):
        weigher_conf.read_settings(str(tmp_path))
