from data.field.pins import confined

from pinner.cli.commands.host.guests import _note


def test_the_list_of_guests_shows_the_cpus_of_a_definition():
    assert [_note(guest) for guest in confined.HOST.guests] == ["its definition allows CPUs 4-7", ""]
