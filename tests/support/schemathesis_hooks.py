"""Values that the OpenAPI document cannot give to schemathesis: the CPUs of the host (support.real_service), markers.

schemathesis loads this module in a process of its own.
"""

import uuid

import schemathesis
from hypothesis import strategies as st

from pinner.model.cpuset import MAX_CPUS

LARGEST_THRESHOLD = 800
"""Per cent of one CPU: the host of the tests has eight CPUs."""

schemathesis.openapi.format("cpu-list", st.sampled_from(["auto", "0", "4"]))
schemathesis.openapi.format("cpu-ids", st.sampled_from(["", "0", "4-7"]))
schemathesis.openapi.format("marker", st.just(""))
schemathesis.openapi.format("idempotency-key", st.just("key"))


@schemathesis.hook
def before_call(_context, case, _kwargs):
    """Leave out what a schema cannot express: the revision of a policy and a key of another request, which
    test_conventions.py tests, and numbers
    that the host cannot have, which test_pools.py and test_bad_input.py test."""
    for name in ("If-Match", "If-None-Match"):
        case.headers.pop(name, None)
    if "Idempotency-Key" in case.headers:
        case.headers["Idempotency-Key"] = str(uuid.uuid4())
    body = case.body if isinstance(case.body, dict) else {}
    for request in (body, body.get("request")):
        least = request.get("minimum_cores") if isinstance(request, dict) else None
        if type(least) in (int, float) and 1 < least <= MAX_CPUS and least == int(least):
            request["minimum_cores"] = type(least)(1)
        threshold = request.get("busy_threshold") if isinstance(request, dict) else None
        if type(threshold) in (int, float) and threshold > LARGEST_THRESHOLD:
            request["busy_threshold"] = type(threshold)(LARGEST_THRESHOLD)


@schemathesis.hook
def filter_body(_context, body):
    """Skip bodies whose CPU lists overlap. A schema cannot express that error, and test_service.py tests it."""
    lists = [body.get(name) for name in ("housekeeping", "emulator")] if isinstance(body, dict) else []
    return "auto" in lists or len({*map(str, lists)}) == len(lists)
