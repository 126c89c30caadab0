"""Changes a host by a plan, and undoes the changes. executor is the way in; ports has the interfaces of host and
journal."""
