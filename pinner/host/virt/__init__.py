"""Guests as libvirt shows them. Only the modules libvirt* talk to libvirt."""
