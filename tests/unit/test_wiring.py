"""What wiring reads from pinner's own configuration about Nova."""

from pathlib import Path

import pytest
from oslo_config import cfg

from pinner import wiring
from pinner.conf import rabbit
from pinner.model.errors import Invalid
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


def test_a_wrong_kind_of_queue_is_an_error_that_names_the_option(configured) -> None:
    with pytest.raises(Invalid, match=r"\[oslo_messaging_rabbit\] amqp_durable_queues.*maybe"):
        wiring.listening(configured("[oslo_messaging_rabbit]\namqp_durable_queues = maybe\n"))


def test_the_options_of_oslo_messaging_stay_as_the_library_has_registered_them(configured) -> None:
    theirs = cfg.BoolOpt("rabbit_quorum_queue", default=True, help="oslo.messaging's own")
    conf = cfg.ConfigOpts()
    conf.register_opt(theirs, group="oslo_messaging_rabbit")
    conf([], default_config_files=[str(configured("")[0])])
    assert rabbit.register(rabbit.register(conf)).oslo_messaging_rabbit.rabbit_quorum_queue is True
