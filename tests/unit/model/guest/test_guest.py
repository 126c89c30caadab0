from dataclasses import replace

import pytest

from pinner import codec
from pinner.model.cpuset import CpuSet
from pinner.model.guest.guest import Emulator, Guest, NovaIdentity, Vcpu, with_nova_identity
from pinner.model.machine.process import Thread


def guest(**known):
    return Guest("u", "web", "running", 1, (), Emulator(CpuSet(), ()), (), (), 1, {}, **known)


@pytest.mark.parametrize(
    ("before", "specs", "dedicated"),
    [
        (False, {"hw:cpu_policy": "dedicated"}, True),
        (False, {"hw:cpu_policy": "shared"}, False),
        (True, {}, True),
    ],
    ids=["its flavor", "shared", "by its pins"],
)
def test_a_notified_flavor_can_make_a_guest_dedicated(before, specs, dedicated):
    identity = NovaIdentity("web", "shop", "ann", "m1.small", specs)
    found = with_nova_identity(guest(dedicated=before), identity)
    assert (found.nova, found.dedicated, found.name) == (identity, dedicated, "web")


def test_an_identity_stored_without_extra_specs_still_loads():
    stored = '{"instance": "web", "project": "shop", "user": "ann", "flavor": "m1.small"}'
    assert codec.load(NovaIdentity, stored) == NovaIdentity("web", "shop", "ann", "m1.small", {})


@pytest.mark.parametrize("name", ["vcpu_affinities", "vcpu_targets"])
def test_a_strategy_cannot_change_a_guest(name):
    """The context gives plug-ins these mappings, and the guest keeps them for every later question."""
    vcpu = Vcpu(0, Thread(2, 0, "CPU 0/KVM", CpuSet.of([1])), CpuSet())
    mapping = getattr(replace(guest(), vcpus=(vcpu,)), name)
    with pytest.raises(TypeError):
        mapping[0] = None
