"""pinner on a host: its user, folders, configuration, systemd units, and its hook script among libvirt's."""
