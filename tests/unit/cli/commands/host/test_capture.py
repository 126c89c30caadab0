"""pinner capture: its messages, and the arguments that it refuses."""

import json

from support.roots import two_nodes


def test_a_captured_machine_reads_like_its_original(cli, tmp_path):
    root = two_nodes(tmp_path / "host")
    saved = cli("capture", tmp_path / "copy" / "host", "--root", root, "--scrub")
    assert (saved.status, saved.out) == (0, "")
    assert saved.err.startswith("saved ")
    first, second = (
        json.loads(cli("inventory", "--root", folder, "--json").out) for folder in (root, tmp_path / "copy" / "host")
    )
    assert second["topology"]["cpus"] == first["topology"]["cpus"]


def test_a_second_capture_into_the_same_folder_is_refused(cli, tmp_path):
    root = two_nodes(tmp_path / "host")
    assert cli("capture", tmp_path / "copy", "--root", root).status == 0
    again = cli("capture", tmp_path / "copy", "--root", root)
    assert again.status == 2
    assert "a new or empty folder" in again.err
    assert again.err.count("\n") == 1


def test_capture_of_a_server_is_refused(cli, tmp_path):
    refused = cli("capture", tmp_path / "copy", "--url", "http://127.0.0.1:1")
    assert refused.status == 2
    assert "capture works on this machine only" in refused.err
    assert not (tmp_path / "copy").exists()
