"""The agent of a host. protocol names its calls, and local answers them in this process."""
