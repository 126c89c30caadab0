from oslo_config import cfg

NAME = "libvirt"
OPTIONS = [
    cfg.StrOpt("uri", default="qemu:///system", help="libvirt connection URI of this host."),
    cfg.FloatOpt(
        "call_timeout",
        default=10.0,
        min=0.1,
        help="Seconds that one call about a guest is waited for, and a sixth of what one about the host is. A guest "
        "whose QEMU or other job holds up a change fails that change after them, and is waited for once more to undo "
        "it; half of them are what a libvirtd that is restarted has.",
    ),
]
