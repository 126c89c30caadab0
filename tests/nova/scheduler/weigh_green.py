"""Weighs hosts in a process that eventlet has patched, as in nova-scheduler. ``weigh_green.py WEIGHER_CONF``."""

import eventlet

eventlet.monkey_patch()

import json  # noqa: E402
import sys  # noqa: E402
import time  # noqa: E402

from nova import objects  # noqa: E402
from nova.scheduler import host_manager, weights  # noqa: E402

from pinner.nova import weigher, weigher_conf  # noqa: E402


def main():
    """Print the weights and the seconds that they took as JSON."""
    objects.register_all()
    weigher_conf.CONFIG = sys.argv[1]
    flavor = objects.Flavor(vcpus=4, memory_mb=512, extra_specs={})
    spec = objects.RequestSpec(flavor=flavor, numa_topology=None)
    states = [host_manager.HostState(f"h{n}", f"h{n}", "c") for n in range(50)]
    made = weigher.PinnerWeigher()
    began = time.monotonic()
    found = weights.HostWeightHandler().get_weighed_objects([made], states, spec)
    seconds = time.monotonic() - began
    print(json.dumps({"weights": sorted({each.weight for each in found}), "seconds": seconds}))


if __name__ == "__main__":
    main()
