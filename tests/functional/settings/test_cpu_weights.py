"""The CPU weight of the guests on this machine, where systemd does not run: a clear error, and nothing is set."""

from pathlib import Path

import pytest

from pinner.host.settings import cpu_weights, table
from pinner.model.errors import ApplyFailed
from pinner.model.settings.cpu_weights import DEFAULT, RAISED, WEIGHT

ROOT = Path("/")

pytestmark = pytest.mark.skipif(Path("/run/systemd/system").exists(), reason="needs a machine without systemd")


@pytest.mark.parametrize("weight", [RAISED, DEFAULT])
def test_without_systemd_there_is_no_weight_and_none_is_set(weight):
    assert cpu_weights.read_cpu_weights(ROOT) == {}
    with pytest.raises(ApplyFailed, match=r"systemd does not (tell|answer)"):
        table.state_of(ROOT, WEIGHT)
    with pytest.raises(ApplyFailed, match=r"systemd (refuses CPUWeight|does not answer)"):
        table.set_state(ROOT, WEIGHT, weight)
    assert not (ROOT / cpu_weights.CONTROL).exists()
