"""A snapshot read for one request, with the processes that the plan moves."""
