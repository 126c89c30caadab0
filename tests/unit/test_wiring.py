"""What wiring reads from pinner's own configuration about Nova."""

from pathlib import Path

import pytest

from pinner import wiring
from pinner.model.nova_report import Listening


@pytest.fixture
def configured(tmp_path: Path):
    def configured(text: str) -> list[Path]:
        file = tmp_path / "pinner.conf"
        file.write_text(text)
        return [file]

    return configured


def test_an_ignored_configuration_of_nova_is_not_read(configured) -> None:
    files = configured("[nova]\nignore_nova_conf = true\nnova_conf = /does/not/exist\n")
    assert wiring.nova_reader(wiring.configuration(files))() is None


def test_the_named_files_of_nova_are_read(configured, tmp_path) -> None:
    (tmp_path / "nova.conf").write_text("[compute]\ncpu_dedicated_set = 4\n")
    read = wiring.nova_reader(wiring.configuration(configured(f"[nova]\nnova_conf = {tmp_path}/nova.conf\n")))
    found = read()
    assert found is not None
    assert found.dedicated == "4"


@pytest.mark.parametrize(
    ("text", "listening"),
    [
        ("", Listening()),
        ("[oslo_messaging_rabbit]\namqp_durable_queues = true\n", Listening(is_durable=True)),
        ("[oslo_messaging_rabbit]\nrabbit_quorum_queue = true\n", Listening(is_durable=True, is_quorum=True)),
    ],
)
def test_the_listeners_kind_of_queue_is_read(configured, text: str, listening: Listening) -> None:
    assert wiring.listening(configured(text)) == listening
