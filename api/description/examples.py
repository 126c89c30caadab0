"""Examples of bodies for the OpenAPI document: by component, each with a name."""

from typing import Any

_GUEST = "6a5b7a0e-0000-4000-8000-000000000001"
_RUN = {
    "id": "run-0922af3478d4",
    "kind": "apply",
    "host": "compute1",
    "plan": "plan-0922af3478d4593b",
    "actor": "ann",
    "origin": "192.0.2.7",
    "state": "applied",
    "started_at": "2026-11-21T10:00:00Z",
    "ended_at": "2026-11-21T10:00:01Z",
    "persist": False,
    "undoes": "",
    "error": "",
    "migrate_memory": False,
    "all_or_nothing": False,
    "recovered": "",
}
_REQUEST = {"strategy": "numa-local", "excluded_guests": ["db1"]}

EXAMPLES: dict[str, dict[str, Any]] = {
    "NewPlan": {
        "defaults": {},
        "one strategy": {"strategy": "numa-local", "housekeeping": "0-1", "emulator": "auto"},
        "one guest": {"guests": ["web1"], "sample_seconds": 0},
    },
    "NewSnapshot": {"without CPU use": {"sample_seconds": 0}},
    "NewApply": {"live": {}, "persistent": {"persist": True}},
    "NewPolicy": {"observe": {"mode": "observe"}, "enforce": {"mode": "enforce", "request": _REQUEST}},
    "NewExclusion": {"exclude": {"excluded": True}, "include": {"excluded": False}},
    "NewEvent": {"reboot": {"host": "compute1", "guest": _GUEST, "event": "instance.reboot.end", "source": "nova"}},
    "NewLeavingEvent": {
        "migration": {"host": "compute1", "guest": _GUEST, "event": "instance.live_migration_pre.start", "cpus": "0-15"}
    },
    "Run": {"applied": _RUN},
    "RunPage": {"one run": {"items": [_RUN], "next": ""}},
    "PlanSummaryPage": {
        "one plan": {
            "items": [
                {
                    "id": "plan-0922af3478d4593b",
                    "host": "compute1",
                    "strategy": "shared-pool",
                    "created_at": "2026-11-21T10:00:00Z",
                    "changes": 7,
                    "unplaced": 0,
                    "blocked": "",
                }
            ],
            "next": "plan-0922af3478d4593b",
        }
    },
    "NamePage": {"one host": {"items": ["compute1"], "next": ""}},
    "GuestExclusion": {"excluded": {"uuid": _GUEST, "name": "web1", "excluded": True}},
    "Health": {"ok": {"status": "ok"}},
    "ErrorDocument": {
        "wrong input": {
            "error": {
                "code": "invalid",
                "message": "housekeeping: '0-99' is not valid: CPUs of this host; it has no 16-99",
                "details": {"field": "housekeeping", "value": "0-99", "expected": "CPUs of this host; it has no 16-99"},
                "request_id": "req-5f0f7a52-26b5-4bd3-8e3a-2f6f3a8f5a10",
            }
        }
    },
}
