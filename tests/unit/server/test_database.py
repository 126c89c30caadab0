"""The file of an SQLite database that everybody can replace or write is refused."""

import os

import pytest

from pinner.model.errors import Invalid
from pinner.server.privileges import require_closed

ME = os.geteuid()


def test_the_folder_of_a_linked_file_counts_too(tmp_path):
    inside, outside = tmp_path / "safe", tmp_path / "open"
    inside.mkdir(mode=0o700)
    outside.mkdir()
    outside.chmod(0o777)
    (inside / "link.sqlite").symlink_to(outside / "x.sqlite")
    with pytest.raises(Invalid, match=f"everybody can write {outside}"):
        require_closed(f"sqlite:///{inside}/link.sqlite", ME)
    outside.chmod(0o700)
    require_closed(f"sqlite:///{inside}/link.sqlite", ME)


def test_a_file_that_everybody_can_write_is_refused(tmp_path):
    file = tmp_path / "x.sqlite"
    file.touch()
    file.chmod(0o666)
    with pytest.raises(Invalid, match=f"chmod o-w {file}"):
        require_closed(f"sqlite:///{file}", ME)
    file.chmod(0o600)
    require_closed(f"sqlite:///{file}", ME)
