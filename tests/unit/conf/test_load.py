import pytest

from pinner.conf import load
from pinner.model.errors import Invalid


def test_values_come_from_the_file_or_the_defaults(tmp_path):
    file = tmp_path / "pinner.conf"
    file.write_text("[api]\nport = 9000\n")
    conf = load([file])
    assert (conf.api.port, conf.api.bind, conf.host.sample_seconds) == (9000, "", 5.0)


@pytest.mark.parametrize(
    ("text", "why"),
    [
        ("[api]\nport = many\n", "port"),
        ("[api]\nport = 70000\n", "port"),
        ("[host]\nsample_seconds = -1\n", "sample_seconds"),
        ("no section\n", "at .*pinner.conf:1"),
    ],
)
def test_an_error_names_the_file_and_the_option(tmp_path, text, why):
    file = tmp_path / "pinner.conf"
    file.write_text(text)
    with pytest.raises(Invalid, match=why) as caught:
        load([file])
    assert caught.value.details["value"] == str(file)


def test_a_missing_file_is_invalid(tmp_path):
    with pytest.raises(Invalid, match="nowhere"):
        load([tmp_path / "nowhere.conf"])
