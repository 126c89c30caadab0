"""Emits notifications with Nova's own code, about an instance that is in no database.

Run ``emit.py NOVA_CONF`` by an interpreter that has Nova. It reads one JSON object per line from stdin, with the
arguments of ``emit``. It prints ``ok`` after each.
"""

import datetime
import json
import sys

import nova.conf
from nova import context, objects, rpc
from nova.compute import utils
from oslo_utils import timeutils

NOW = datetime.datetime(2026, 11, 21, 12, tzinfo=datetime.UTC)


def instance(uuid, host, flavor, extra_specs):
    """A running instance; without ``extra_specs`` its flavor has not loaded them, and Nova sends null."""
    loaded = {} if extra_specs is None else {"extra_specs": extra_specs}
    flavor = objects.Flavor(
        flavorid=f"id-{flavor}", name=flavor,
        memory_mb=512, vcpus=1, root_gb=1, ephemeral_gb=0, swap=0, rxtx_factor=1.0,
        vcpu_weight=0, disabled=False, is_public=True, projects=[], description=None,
        **loaded,
    )  # fmt: skip
    return objects.Instance(
        id=1, uuid=uuid, host=host, node=host, project_id="p-1", user_id="ann", display_name="web", flavor=flavor,
        display_description="", reservation_id="r-1", hostname="web", os_type=None, architecture="x86_64",
        availability_zone="nova",
        image_ref="", key_name=None, kernel_id="", ramdisk_id="", created_at=NOW, launched_at=NOW, terminated_at=None,
        deleted_at=None, updated_at=NOW, vm_state="active", power_state=1, task_state=None, progress=0, metadata={},
        locked=False, auto_disk_config=False, system_metadata={}, keypairs=objects.KeyPairList(objects=[]),
        tags=objects.TagList(objects=[]), trusted_certs=None, deleted=False,
        info_cache=objects.InstanceInfoCache(instance_uuid=uuid, network_info=None),
    )  # fmt: skip


SPECS = {"pinner:strategy": "numa-local"}


def emit(action, phase, publisher, uuid, host, request, flavor="pinned.small", extra_specs=SPECS, age=0.0):
    """Emit one notification, as nova-compute of the host ``publisher`` did ``age`` seconds ago."""
    timeutils.set_time_override(timeutils.utcnow() - datetime.timedelta(seconds=age))
    try:
        _emit(action, phase, publisher, instance(uuid, host, flavor, extra_specs), request)
    finally:
        timeutils.clear_time_override()


def _emit(action, phase, publisher, server, request):
    request = context.RequestContext("ann", "p-1", request_id=request)
    bdms = objects.BlockDeviceMappingList(objects=[])
    if action == "create":
        utils.notify_about_instance_create(request, server, publisher, phase=phase, bdms=bdms)
    elif action == "rebuild":
        utils.notify_about_instance_rebuild(request, server, publisher, phase=phase, bdms=bdms)
    elif action == "resize_prep":
        utils.notify_about_resize_prep_instance(request, server, publisher, phase, server.flavor)
    elif action == "rescue":
        utils.notify_about_instance_rescue_action(request, server, publisher, None, phase=phase)
    else:
        utils.notify_about_instance_action(request, server, publisher, action=action, phase=phase, bdms=bdms)


def main():
    """Emit the notifications that stdin lists."""
    conf = nova.conf.CONF
    rpc.set_defaults(control_exchange="nova")
    conf([], project="nova", default_config_files=[sys.argv[1]])
    objects.register_all()
    rpc.init(conf)
    print("ready", flush=True)
    for line in sys.stdin:
        emit(**json.loads(line))
        print("ok", flush=True)


if __name__ == "__main__":
    main()
