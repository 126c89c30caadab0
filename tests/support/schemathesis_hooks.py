"""What schemathesis cannot know of the served host (support.served): which CPUs it has, and markers that it gave out.

Loaded by schemathesis itself, in a process of its own.
"""

import schemathesis
from hypothesis import strategies as st

schemathesis.openapi.format("cpu-list", st.sampled_from(["auto", "0", "4"]))
schemathesis.openapi.format("cpu-ids", st.sampled_from(["", "0", "4-7"]))
schemathesis.openapi.format("marker", st.just(""))


@schemathesis.hook
def filter_body(_context, body):
    """Two lists may each be right and overlap: no schema says so, and test_service.py covers it."""
    lists = [body.get(name) for name in ("housekeeping", "emulator")] if isinstance(body, dict) else []
    return "auto" in lists or len({*map(str, lists)}) == len(lists)
