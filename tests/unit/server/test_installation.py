"""The folders of the installation that the API's user cannot read."""

import sys
import tempfile
from pathlib import Path

import pytest
from support.server.accounts import api_account

from pinner.server.installation import closed_to


@pytest.mark.needs("root")
def test_a_folder_below_a_closed_one_is_named(monkeypatch):
    """A user that may not enter the closed folder cannot even ask whether there is something in it."""
    with tempfile.TemporaryDirectory(prefix="pinner-test-") as name:
        packages = Path(name, "packages")
        packages.mkdir(mode=0o755)
        monkeypatch.setattr(sys, "path", [*sys.path, str(packages)])
        Path(name).chmod(0o755)
        assert packages not in closed_to(api_account())
        Path(name).chmod(0o700)
        assert packages in closed_to(api_account())
