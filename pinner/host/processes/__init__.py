"""The processes of a host: QEMU, Open vSwitch, pinner itself, and those that must not move."""
