"""Emits notifications with Nova's own code, about an instance that is in no database.

Run ``emit.py NOVA_CONF`` by an interpreter that has Nova. It reads one JSON object per line from stdin: ``action``,
``phase``, ``publisher`` (the publishing host), and the instance's ``uuid`` and ``host``. It prints ``ok`` after each.
"""

import datetime
import json
import sys

import nova.conf
from nova import context, objects, rpc
from nova.compute import utils

NOW = datetime.datetime(2026, 11, 21, 12, tzinfo=datetime.UTC)


def instance(uuid, host):
    """A running instance whose flavor requests a strategy of pinner."""
    flavor = objects.Flavor(
        flavorid="f-1", name="pinned.small", memory_mb=512, vcpus=1, root_gb=1, ephemeral_gb=0, swap=0, rxtx_factor=1.0,
        vcpu_weight=0, disabled=False, is_public=True, projects=[], description=None,
        extra_specs={"pinner:strategy": "numa-local"},
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


def emit(action, phase, publisher, uuid, host):
    """Emit one notification, as nova-compute does."""
    request = context.RequestContext("ann", "p-1", request_id="req-00000000-0000-4000-8000-000000000007")
    server, bdms = instance(uuid, host), objects.BlockDeviceMappingList(objects=[])
    if action == "create":
        utils.notify_about_instance_create(request, server, publisher, phase=phase, bdms=bdms)
    elif action == "rebuild":
        utils.notify_about_instance_rebuild(request, server, publisher, phase=phase, bdms=bdms)
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
