"""The programs pinner and pinner-manage. main parses a command, and parser has what every command shares."""
