"""Ways to name an option of Nova by $ in a CPU list: options of each type, with and without a valid value."""

from support.nova.nova_variants import NOVA, Variant


def named(option: str, value: str | None, reason: str = "", **variables: str) -> Variant:
    """A CPU list that names this option (``section.name``), which has this value in its section; None: not set."""
    section, name = option.split(".")
    lines = [f"[{section}]"] + ([] if value is None else [f"{name} = {value}"])
    by = name if section == "DEFAULT" else option
    files = {NOVA: "\n".join([*lines, "[compute]", f"cpu_shared_set = 0-3,${by}", ""])}
    environment = {f"OS_{variable}": text for variable, text in variables.items()}
    said = "" if value is None else f" = {value}"
    return Variant(
        f"{option}{said}{' ' if variables else ''}{' '.join(variables)}", files, (), environment, "/", reason
    )


def written(name: str, text: str, reason: str = "") -> Variant:
    """A file with this content."""
    return Variant(name, {NOVA: text}, reason=reason)


REFERENCES = (
    named("DEFAULT.debug", None, "False"),
    named("DEFAULT.debug", "1", "True"),
    named("DEFAULT.debug", "yes", "True"),
    named("DEFAULT.debug", "maybe", "'maybe'"),
    named("DEFAULT.debug", "", "boolean value ''"),
    named("libvirt.cpu_power_management", "off", "False"),
    named("quota.cores", None),
    named("quota.cores", "5"),
    named("quota.cores", "07"),
    named("quota.cores", "1_0"),
    named("quota.cores", ""),
    named("quota.cores", "4.0", "'4.0'"),
    named("quota.cores", "4-7", "'4-7'"),
    named("quota.cores", "-2", "greater than or equal to -1"),
    named("quota.cores", "-1", "'-1'"),
    named("libvirt.num_pcie_ports", "28"),
    named("libvirt.num_pcie_ports", "29", "less than or equal to 28"),
    named("libvirt.rx_queue_size", None),
    named("libvirt.rx_queue_size", "256"),
    named("libvirt.rx_queue_size", "4", "found 4"),
    named("DEFAULT.cpu_allocation_ratio", None),
    named("DEFAULT.cpu_allocation_ratio", "4", "'4.0'"),
    named("DEFAULT.cpu_allocation_ratio", ""),
    named("DEFAULT.cpu_allocation_ratio", "-1", "greater than or equal to 0"),
    named("DEFAULT.cpu_allocation_ratio", "x", "could not convert string to float: 'x'"),
    named("cache.retry_delay", None, "'0.0'"),
    named("serial_console.serialproxy_port", None),
    named("serial_console.serialproxy_port", "8"),
    named("serial_console.serialproxy_port", "70000", "less than or equal to 65535"),
    named("filter_scheduler.enabled_filters", None, "['ComputeFilter'"),
    named("filter_scheduler.enabled_filters", "4", "['4']"),
    named("filter_scheduler.enabled_filters", "", "'[]'"),
    named("glance.retriable_status_codes", None),
    named("glance.retriable_status_codes", "4", "'[4]'"),
    named("glance.retriable_status_codes", "x", "'x'"),
    named("vnc.auth_schemes", "4", "found '4'"),
    named("pci.alias", None, "'[]'"),
    named("pci.alias", "4", "['4']"),
    named("DEFAULT.reserved_huge_pages", None),
    named("DEFAULT.reserved_huge_pages", "node:4", "[{'node'"),
    named("DEFAULT.reserved_huge_pages", "4", "NAME:VALUE"),
    named("oslo_messaging_notifications.driver", "4", "['4']"),
    named("notifications.versioned_notifications_topics", "4", "['4']"),
    named("notifications.notification_format", "4", "found '4'"),
    named("libvirt.virt_type", "4", "found '4'"),
    named("libvirt.virt_type", None, "'kvm'"),
    named("DEFAULT.log_rotation_type", "SIZE", "'SIZE'"),
    named("ironic.shard", None),
    named("ironic.shard", "4"),
    named("ironic.shard", "4,5", "doesn't match regex"),
    named("ironic.shard", "4" * 256, "exceeds maximum length 255"),
    named("serial_console.port_range", "4", "doesn't match regex"),
    named("glance.region_name", "4,5"),
    named("glance.region_name", "4 5", "'4 5'"),
    named("DEFAULT.host", "4", "not a valid host address"),
    named("DEFAULT.host", "4,5", "not a valid host address"),
    named("DEFAULT.my_ip", "4"),
    named("vnc.server_listen", "4", "not a valid host address"),
    named("vnc.server_listen", "4,5", "not a valid host address"),
    named("vnc.novncproxy_base_url", "4", "novncproxy_base_url"),
    named("zvm.cloud_connector_url", None),
    named("cinder.auth_section", "4"),
    named("cyborg.version", "4"),
    named("quota.cores", None, QUOTA__CORES="5"),
    named("quota.cores", "5", "'x'", QUOTA__CORES="x"),
    named("DEFAULT.cpu_allocation_ratio", None, "'4.0'", DEFAULT__CPU_ALLOCATION_RATIO="4"),
    named("pci.alias", None, "['4']", PCI__ALIAS="4"),
    written("an old name", "[DEFAULT]\nquota_cores = 5\n[compute]\ncpu_shared_set = 0-$quota.cores\n"),
    written("an old name in $", "[DEFAULT]\nquota_cores = 5\n[compute]\ncpu_shared_set = 0-$quota_cores\n"),
    written("the section of an old name", "[ssl]\nca_file = 5\n[compute]\ncpu_shared_set = 0-$glance.cafile\n"),
    written("an old boolean", "[DEFAULT]\nvnc_enabled = 5\n[compute]\ncpu_shared_set = 0-$vnc.enabled\n", "'5'"),
    written("both names",
        "[DEFAULT]\nquota_cores = 5\n[quota]\ncores = 6\n[compute]\ncpu_shared_set = 0-$quota.cores\n"),
    written("a number that names another",
        "[quota]\ncores = $max_concurrent_builds\n[compute]\ncpu_shared_set = 0-$quota.cores\n"),
    written("a number that names a float",
        "[DEFAULT]\ncpu_allocation_ratio = 4\n[quota]\ncores = $cpu_allocation_ratio\n"
        "[compute]\ncpu_shared_set = 0-$quota.cores\n", "'4.0'"),
    written("a wrong value that is not named",
        "[quota]\ncores = x\n[compute]\ncpu_shared_set = 0-$max_concurrent_builds\n"),
    written("an option with several values", "[pci]\nalias = 4\nalias = 5\n[compute]\ncpu_shared_set = $pci.alias\n",
        "['4'"),
)  # fmt: skip
