"""The checks of `pinner check`: pure functions of a HostReading. docs/checks.md lists their codes."""
