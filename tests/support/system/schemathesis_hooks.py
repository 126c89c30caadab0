"""Values that the OpenAPI document cannot give to schemathesis: the CPUs of the host (support.server.real_service;
its CPU 7 is offline), markers.

schemathesis loads this module in a process of its own.
"""

import uuid

import schemathesis
from hypothesis import strategies as st

from pinner.api.schemas.inputs import MAX_NAMES
from pinner.model.cpuset import MAX_CPUS
from pinner.model.plan.request import SETS, Request
from pinner.model.questions import MAX_NEW_GUESTS

LARGEST_THRESHOLD = 800
"""Per cent of one CPU: the host of the tests has eight CPUs."""

schemathesis.openapi.format("cpu-list", st.sampled_from(["auto", "0", "4"]))
schemathesis.openapi.format("cpu-ids", st.sampled_from(["", "0", "4-6"]))
schemathesis.openapi.format("marker", st.just(""))
schemathesis.openapi.format("idempotency-key", st.just("key"))


@schemathesis.hook
def before_call(_context, case, _kwargs):
    """Leave out what a schema cannot express: the revision of a policy and a key of another request, which
    test_conventions.py tests, and numbers that the host cannot have, which test_pools.py and test_bad_input.py test."""
    for name in ("If-Match", "If-None-Match"):
        case.headers.pop(name, None)
    if "Idempotency-Key" in case.headers:
        case.headers["Idempotency-Key"] = str(uuid.uuid4())
    if case.path.endswith("/measures"):
        # A time after the end; test_routes.py tests it.
        (case.query or {}).pop("from", None)
        # Series that a guest does not have; test_measures.py tests it.
        if "guest" in (case.query or {}):
            case.query.pop("series", None)
    _drop_alone(case, "/capacity", "page_kib", "memory_kib", without=(None, 0, "0"))
    _drop_alone(case, "/processes", "busy_threshold", "busy", without=(None, False, "false"))
    body = case.body if isinstance(case.body, dict) else {}
    if body.get("migrate_memory") is True:
        # No plan for the host of the tests moves memory; test_memory.py tests that it is refused.
        body["migrate_memory"] = False
    for each in body.get("add") if isinstance(body.get("add"), list) else ():
        # All guests of a question together have a limit.
        _lower(each, "count", MAX_NEW_GUESTS, 1)
        _lower(each.get("shape") if isinstance(each, dict) else None, "vcpus", MAX_CPUS, 8)
    _name_no_pid(case.path, body.get("request"))
    for request in (body, body.get("request"), body.get("then")):
        least = request.get("minimum_cores") if isinstance(request, dict) else None
        if type(least) in (int, float) and 1 < least <= MAX_CPUS and least == int(least):
            request["minimum_cores"] = type(least)(1)
        threshold = request.get("busy_threshold") if isinstance(request, dict) else None
        if type(threshold) in (int, float) and threshold > LARGEST_THRESHOLD:
            request["busy_threshold"] = type(threshold)(LARGEST_THRESHOLD)
        _place_once(request)


def _name_no_pid(path, request):
    """test_policies.py tests that a policy is refused that names one."""
    names = request.get("processes") if isinstance(request, dict) else None
    if path.endswith("/policy") and isinstance(names, list):
        digits = [isinstance(name, str) and name.isdigit() for name in names]
        request["processes"] = [f"p{name[1:]}" if pid else name for name, pid in zip(names, digits, strict=True)]


def _drop_alone(case, path, name, partner, *, without):
    """Leave out a parameter that only counts beside another one; test_bad_input.py tests that it is refused."""
    query = case.query or {}
    if case.path.endswith(path) and query.get(partner) in without:
        query.pop(name, None)


def _lower(values, name, most, to):
    """Replace a valid number above ``to`` by this one; a number that is not valid stays wrong."""
    number = values.get(name) if isinstance(values, dict) else None
    if type(number) in (int, float) and to < number <= most and number == int(number):
        values[name] = type(number)(to)


def _place_once(request):
    """The longest list names a part several times; test_manual.py tests that it is refused, and test_bad_input.py that
    a placement has no other choice beside it."""
    pins = request.get("placement") if isinstance(request, dict) else None
    if isinstance(pins, list) and pins and _chooses(request):
        del request["placement"]
    elif isinstance(pins, list) and 1 < len(pins) <= MAX_NAMES and all(pin == pins[0] for pin in pins):
        request["placement"] = pins[:1]


@schemathesis.hook
def filter_body(_context, body):
    """Skip bodies whose CPU lists overlap, placements with several parts or beside what excludes them, CPUs for
    interrupts that stay, and texts with the character NUL. A schema can express none of these errors; test_service.py,
    test_manual.py, test_irqs.py and test_bad_input.py test them."""
    requests = (body, body.get("request"), body.get("then")) if isinstance(body, dict) else ()
    if _has_nul(body) or any(map(_excludes_placement, requests)) or any(map(_leaves_irqs, requests)):
        return False
    lists = [body[name] for name in SETS if body.get(name, "auto") != "auto"] if isinstance(body, dict) else []
    return len({*map(str, lists)}) == len(lists)


_DEFAULTS = {name: getattr(Request(), name) for name in (*SETS, "busy_threshold", "isolation", "smt", "solver_budget")}


def _chooses(request):
    """What the plan changes, or where."""
    given = any(map(request.get, ("strategy", "guests", "processes", "with", "fix", "rebalance", "with_processes")))
    return given or any(request.get(name, default) != default for name, default in _DEFAULTS.items())


def _excludes_placement(request):
    pins = request.get("placement") if isinstance(request, dict) else None
    if not isinstance(pins, list) or not pins:
        return False
    return len(pins) > 1 or _chooses(request)


def _leaves_irqs(request):
    if not isinstance(request, dict) or not request.get("irq_cpus"):
        return False
    kinds = request.get("with")
    return not (isinstance(kinds, list) and "irqs" in kinds)


def _has_nul(value):
    if isinstance(value, dict):
        return any(map(_has_nul, value)) or any(map(_has_nul, value.values()))
    return any(map(_has_nul, value)) if isinstance(value, list) else isinstance(value, str) and "\0" in value
