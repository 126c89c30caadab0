"""A weigher for Nova's scheduler: it prefers hosts on which pinner has CPUs for the guest as its flavor asks.

Nova loads it by its path:

    [filter_scheduler]
    weight_classes = nova.scheduler.weights.all_weighers,pinner.nova.weigher.PinnerWeigher

A host where the guest fits weighs 1, every other one 0, also one whose pinner does not answer. Where Nova itself gives
the guest CPUs of its own, or pinner leaves the guest alone, every host weighs 0."""

from __future__ import annotations

import logging
import re
from typing import Any

from nova.scheduler import utils, weights  # type: ignore[import-not-found]

from pinner.nova import weigher_conf
from pinner.nova.delivery import host_rooms

LOG = logging.getLogger(__name__)

MULTIPLIER = "pinner_weight_multiplier"
"""An aggregate's metadata, which overrides weigher.conf for its hosts."""
_PCPUS = re.compile(r"resources([1-9][0-9]*)?:PCPU")
_DEDICATING = ("dedicated", "mixed")
_DIGITS = 6
_TRUE = ("1", "t", "true", "on", "y", "yes")
"""The words of oslo_utils.strutils.bool_from_string, by which pinner reads a flavor."""


class PinnerWeigher(weights.BaseHostWeigher):  # type: ignore[misc]
    """It raises nothing: a scheduling never fails because of it."""

    minval = 0
    maxval = 1

    def __init__(self) -> None:
        self._rooms: host_rooms.HostRooms | None = None
        self._multiplier = 1.0
        try:
            settings = weigher_conf.read_settings(weigher_conf.CONFIG)
            self._multiplier = settings.multiplier
            self._rooms = host_rooms.HostRooms(settings)
        except weigher_conf.SettingsError as error:
            LOG.error("pinner's weigher gives every host the same weight: %s", error)

    def weight_multiplier(self, host_state: Any) -> float:
        return float(utils.get_weight_multiplier(host_state, MULTIPLIER, self._multiplier))

    def weigh_objects(self, weighed_obj_list: list[Any], weight_properties: Any) -> list[float]:
        none = [0.0] * len(weighed_obj_list)
        try:
            need = need_of(weight_properties)
            if self._rooms is None or need is None:
                return none
            states = [weighed.obj for weighed in weighed_obj_list]
            rooms = self._rooms.rooms(state.host for state in states)
            return [float(self._fits(state, rooms, need)) for state in states]
        except Exception:
            LOG.exception("pinner's weigher gives every host the same weight")
            return none

    def _weigh_object(self, obj: Any, weight_properties: Any) -> float:
        raise NotImplementedError

    def _fits(self, state: Any, rooms: dict[str, host_rooms.Room], need: host_rooms.Need) -> bool:
        if self._rooms is None or state.host not in rooms:
            return False
        return host_rooms.fits(rooms[state.host], need, self._rooms.claimed(state.host, state.vcpus_used or 0))


def need_of(spec: Any) -> host_rooms.Need | None:
    """None where pinner does not place the vCPUs of the RequestSpec's guest."""
    flavor = spec.flavor
    specs = dict(flavor.extra_specs or {}) if "extra_specs" in flavor else {}
    image = _image_policy(spec)
    dedicated = specs.get("hw:cpu_policy") in _DEDICATING or image in _DEDICATING
    if dedicated or any(_PCPUS.match(name) and _positive(count) for name, count in specs.items()):
        return None
    if specs.get("pinner:excluded", "").strip().lower() in _TRUE:
        return None
    strategy = str(specs.get("pinner:strategy", ""))
    return host_rooms.Need(flavor.vcpus, flavor.memory_mb * 1024, strategy, _cells(spec, specs, flavor.vcpus))


def _positive(count: str) -> bool:
    try:
        return int(count) > 0
    except ValueError:
        return False


def _image_policy(spec: Any) -> str | None:
    image = spec.image if "image" in spec else None
    return image.properties.get("hw_cpu_policy") if image is not None and "properties" in image else None


def _cells(spec: Any, specs: dict[str, str], vcpus: int) -> tuple[int, ...]:
    """The vCPUs of each NUMA node of the guest, as Nova computed them or as hw:numa_nodes divides them."""
    topology = spec.numa_topology if "numa_topology" in spec else None
    if topology is not None:
        return tuple(len(cell.cpuset | cell.pcpuset) for cell in topology.cells)
    count = specs.get("hw:numa_nodes", "")
    cells = int(count) if count.isascii() and count.isdigit() and len(count) < _DIGITS else 0
    return (vcpus // cells,) * cells if 0 < cells <= vcpus else ()
