"""The checks of `pinner check`: pure functions of a HostReading. docs/checks.md lists their codes.

Each module has the ``CHECKS`` of a topic; common and limits have helpers. Those of network include those of udp.
"""
