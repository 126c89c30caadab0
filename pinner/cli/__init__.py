"""The programs pinner and pinner-manage. main finds the command and calls it; frame/ has what every command shares."""
