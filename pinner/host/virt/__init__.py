"""Guests as libvirt shows them. The modules libvirt* alone talk to libvirt."""
