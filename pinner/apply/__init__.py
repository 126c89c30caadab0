"""Changes a host by a plan, and undoes it. executor is the way in; ports has the interfaces of host and journal."""
