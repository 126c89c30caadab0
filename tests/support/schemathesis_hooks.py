"""Values that the OpenAPI document cannot give to schemathesis: the CPUs of the host (support.real_service), markers.

schemathesis loads this module in a process of its own.
"""

import uuid

import schemathesis
from hypothesis import strategies as st

schemathesis.openapi.format("cpu-list", st.sampled_from(["auto", "0", "4"]))
schemathesis.openapi.format("cpu-ids", st.sampled_from(["", "0", "4-7"]))
schemathesis.openapi.format("marker", st.just(""))
schemathesis.openapi.format("idempotency-key", st.just("key"))


@schemathesis.hook
def before_call(_context, case, _kwargs):
    """Leave out what a schema cannot express and test_conventions.py tests: the revision of a policy, and that a key of
    another request is refused."""
    for name in ("If-Match", "If-None-Match"):
        case.headers.pop(name, None)
    if "Idempotency-Key" in case.headers:
        case.headers["Idempotency-Key"] = str(uuid.uuid4())


@schemathesis.hook
def filter_body(_context, body):
    """Skip bodies whose CPU lists overlap. A schema cannot express that error, and test_service.py tests it."""
    lists = [body.get(name) for name in ("housekeeping", "emulator")] if isinstance(body, dict) else []
    return "auto" in lists or len({*map(str, lists)}) == len(lists)
