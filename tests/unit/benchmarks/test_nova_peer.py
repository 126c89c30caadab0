import pytest
from benchmarks.peers import nova_peer
from benchmarks.peers.generated import Shape, guests
from benchmarks.peers.quality import Judge

HARDWARE, POOL = Shape(64, 2, 4).hardware


def test_nova_gets_the_cores_of_the_pool_and_the_guests_in_this_order():
    asked = nova_peer.request(HARDWARE, POOL, guests([4, 2], HARDWARE.online - POOL))
    assert [len(cell["cores"]) for cell in asked["cells"]] == [14, 14]
    assert asked["cells"][0]["cores"][0] == (2, 34)
    assert asked["cells"][1]["socket"] == 1
    assert [(guest["name"], guest["vcpus"]) for guest in asked["guests"]] == [("g0", 4), ("g1", 2)]


def test_an_interpreter_without_nova_is_reported_with_the_way_to_get_one(monkeypatch):
    monkeypatch.setenv("PINNER_NOVA_PYTHON", "/bin/false")
    with pytest.raises(nova_peer.NovaMissing, match="tox run -e nova"), nova_peer.running():
        pass


def test_a_wrong_interpreter_is_named(monkeypatch):
    monkeypatch.setenv("PINNER_NOVA_PYTHON", "/no/such/python")
    wrong = pytest.raises(nova_peer.NovaMissing, match="/no/such/python, which is not an executable file")
    with wrong, nova_peer.running():
        pass


def test_nova_fits_and_books_every_guest_on_cpus_of_its_own():
    placing = guests([8, 4, 16, 20], HARDWARE.online - POOL)
    try:
        with nova_peer.running() as nova:
            fitted = nova.place(HARDWARE, POOL, placing)
    except nova_peer.NovaMissing as error:
        pytest.skip(str(error))
    quality = Judge(HARDWARE, POOL).quality(fitted.places)
    assert (quality.unplaced, quality.extra_nodes) == (0, 0)
    assert 0 < fitted.fitting_ms < fitted.cpu_ms
