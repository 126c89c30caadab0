from oslo_config import cfg

NAME = "libvirt"
OPTIONS = [
    cfg.StrOpt("uri", default="qemu:///system", help="libvirt connection URI of this host."),
    cfg.FloatOpt(
        "call_timeout",
        default=10.0,
        min=0.1,
        max=3600.0,
        help="Seconds that pinner waits for a libvirt call about a guest. If QEMU or another job delays a change of "
        "the guest for longer, the change fails, and pinner waits as long once more to undo it. pinner waits six times "
        "as long for a call about the whole host, and half as long for libvirtd to come back after a restart. After "
        "a tenth of this time without a list of the guests, it reads them one by one.",
    ),
    cfg.BoolOpt(
        "guest_agents",
        default=False,
        help="Whether pinner asks the QEMU guest agents of running guests for their receive packet steering (RPS), at "
        "each snapshot. A plan changes the inside of guests only with this option and `--with guest-rps`.",
    ),
]
