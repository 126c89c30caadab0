"""The root of a host with a new or an old libvirt."""

import pytest
from support.system.hook_images import NEW, OLD, image


@pytest.fixture(params=[NEW, OLD], ids=["qemu.d", "qemu"])
def paths(request, tmp_path):
    return image(tmp_path, request.param)
