import pytest

from pinner.model.cpuset import CpuSet


@pytest.mark.parametrize(
    ("cpus", "mask"),
    [
        ("", "00000000"),
        ("0", "00000001"),
        ("0-3,31", "8000000f"),
        ("0-39", "000000ff,ffffffff"),
        ("0-3,39", "00000080,0000000f"),
        ("32", "00000001,00000000"),
        ("1,100", "00000010,00000000,00000000,00000002"),
    ],
)
def test_the_kernels_mask_has_words_of_32_cpus(cpus, mask):
    assert CpuSet.parse(cpus).mask() == mask
