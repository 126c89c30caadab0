from oslo_config import cfg

NAME = "libvirt"
OPTIONS = [
    cfg.StrOpt("uri", default="qemu:///system", help="libvirt connection URI of this host."),
]
