"""The mask of unbound work in a made-up sysfs."""

from support.roots import write
from support.values import cpus

from pinner.host.kernel.kernel import UNBOUND
from pinner.host.settings import workqueues


def test_the_mask_of_unbound_work_has_words_of_32_bits(tmp_path):
    write(tmp_path, {UNBOUND: "ff,ffffffff\n"})
    assert workqueues.unbound(tmp_path) == cpus("0-39")
    workqueues.set_unbound(tmp_path, cpus("0-3,39"))
    assert (tmp_path / UNBOUND).read_text() == "00000080,0000000f"
