"""Messages of an attacker in the place of the API to the agent: random and hostile values in every call."""

import json
import random
import struct
from typing import Any

CALLS = ("snapshot", "topology", "apply", "rollback", "run", "close_run", "entries", "host_events",
         "has_guest", "publish_guest_event", "publish_policy_set", "explain_drifts", "set_excluded", "audit_head",
         "audit_records", "measures", "reading", "blame")  # fmt: skip

KINDS = ("emulator", "vcpu", "iothread", "vhost", "process", "memory", "workqueue", "partition", "guest")

TEXTS = (
    "", ".", "..", "/", "/etc/passwd", "../../../../etc/shadow", "machine.slice/../../../../etc", "a\0b", "\0",
    "system.slice/ssh.service", "machine.slice", "machine.slice/../system.slice", "--help", "-1", "0", "1", "2",
    "0-8191", "0-9999999", "^0", "1,,2", "\u0663", "\ud7ff", "x" * 5000, "%s%n", "'; DROP TABLE runs; --", "{}",
    "run-1", "plan-1", "h1", "isolated", "member", "root", "release", "rollback", "apply", "process", "partition",
    "workqueue", "memory", "vhost", "guest", "live", "affinity", "state", "<x>&</x>", "\u202e", "\n", "1e8", "NaN",
)  # fmt: skip
NUMBERS = (-1, 0, 1, 2, 7, 255, 4095, 8192, 65536, 2**31 - 1, 2**31, 2**32, 2**53 - 1, 2**53, 2**63, 2**64, 10**30,
           -(2**63), 1e8, 1e308, -0.0, 0.5, 1e-320)  # fmt: skip

ITEMS = ({}, [], [{}], 1, None, "x")
"""Items of a long list: most of them are wrong wherever it stands."""
MANY = 30_000
"""Items of a long list: fewer than the agent refuses by their number, so that it reads them."""

TIMES = ("0001-01-01T00:00:00Z", "9999-12-31T23:59:59Z", "1970-01-01T00:00:00Z", "2026-01-01T00:00:00",
         "2026-01-01T00:00:00+23:59", "2262-04-12T00:00:00Z", "9999-12-31T23:30:00Z")  # fmt: skip
"""The edges of what a time can be."""
SERIES = ([], ["drops"], ["drops"] * 17, ["drops"] * 100_000, ["x" * 4097], ["use_host", ""], "drops", {"drops": 1})
"""Names of series of a call of measures: few, as many as there are, and wrong ones."""
SPANS = [(begin, end, step) for begin in TIMES for end in TIMES for step in (5, 60, 900, 0, -1, 2**63)]
"""All of them are beyond the bounds, or empty."""


class Hostile:
    """Makes messages from a seed, and from legitimate calls that it changes."""

    def __init__(self, seed: int, legitimate: list[dict[str, Any]], ids: list[object]) -> None:
        """``ids`` are process ids, start times and UUIDs of this machine."""
        self._random = random.Random(seed)
        self._others = [json.dumps(call) for call in legitimate if call["call"] != "apply"]
        self._applies = [json.dumps(call) for call in legitimate if call["call"] == "apply"] or self._others
        self._ids = ids

    def message(self) -> bytes:
        """The bytes of one connection: mostly one framed message, sometimes only a part of one, or noise."""
        chance = self._random.random()
        if chance < 0.03:
            return self._random.randbytes(self._random.randrange(64))
        body = self._body(chance)
        length = len(body)
        if chance > 0.985:
            length = self._random.choice((0, length + 1, length - 1, 2**31, 2**32 - 1)) % 2**32
        return struct.pack("!I", length) + body

    def _body(self, chance: float) -> bytes:
        if chance < 0.06:
            return self._random.choice((b"[" * 5000, b"null", b"NaN", b'{"call":1e999}', b'"\\ud800"', b"\xff", b"{"))
        if chance < 0.1:
            begin, end, step = self._random.choice(SPANS)
            call = {"call": "measures", "begin": begin, "end": end, "step": step, "subject": ""}
            return json.dumps(call | {"series": self._random.choice(SERIES)}).encode()
        if chance < 0.13:
            plan = {name: self._many() for name in ("changes", "wanted", "memory")}
            calls = ({"call": "explain_drifts", "drifts": self._many()}, {"call": "apply", "plan": plan, "run": {}})
            return json.dumps(self._random.choice(calls)).encode()
        if chance < 0.14:
            centre = {"seq": self._random.choice(NUMBERS), "hash": self._random.choice(("0" * 64, "", "0" * 65))}
            return json.dumps({"call": "audit_head", "centre": centre}).encode()
        if chance < 0.5:
            names = ("run", "guest", "plan", "excluded", "detail", "after", "timeout", "process_names", "drifts",
                     "sample_seconds", "seconds", "centre", "limit", "begin", "end", "step", "subject",
                     "series", "x")  # fmt: skip
            # Random calls of apply and snapshot never reach the host; legitimate ones are among the changed ones.
            call = {name: self._value(0) for name in names if self._random.random() < 0.7}
            return json.dumps(call | {"call": self._random.choice((*CALLS, self._value(0)))}).encode()
        # An apply takes the agent a hundred times as long as another call.
        call = json.loads(self._random.choice(self._applies if self._random.random() < 0.1 else self._others))
        if "run" in call and isinstance(call["run"], dict) and self._random.random() < 0.8:
            call["run"]["id"] = f"run-{self._random.randrange(2**40):x}"  # an id is used once
        if call["call"] == "apply" and self._random.random() < 0.6:
            self._aim(call["plan"])
        else:
            for _ in range(self._random.randrange(0, 4)):
                self._change(call)
        self._spare(call)
        return json.dumps(call).encode()

    def _spare(self, call: Any) -> None:
        """Long but legitimate waits would make the test long: only values that must be refused stay."""
        for name, most in (("timeout", 60), ("sample_seconds", 300), ("seconds", 300)):
            value = call.get(name)
            if isinstance(value, (int, float)) and 0.01 < value <= most:
                call[name] = 0

    def _aim(self, plan: dict[str, Any]) -> None:
        """Give the plan well-formed changes of targets that are none of its business."""
        pick = self._random.choice
        plan["roles"] = {"housekeeping": "0-99", "emulator": "0-99", "vcpu": "0-99", "notes": ["x"]}
        for _ in range(self._random.randrange(1, 3)):
            owner = str(pick((*self._ids, *TEXTS[:12])))
            member, alone = (
                {"kind": "member", "cpus": "", "invalid": ""},
                {"kind": "isolated", "cpus": "1", "invalid": ""},
            )
            known = [change["target"] for change in plan["changes"] if change["kind"] == "affinity"]
            target = {"kind": pick(KINDS), "owner": owner, "part": pick((None, 0, 1, *self._numbers())), "name": "x"}
            if known and self._random.random() < 0.3:
                target = pick(known) | {pick(("owner", "part", "kind")): pick((owner, 0, 1, "vhost", "process"))}
            before = [{"tid": pick(self._numbers()), "started": pick(self._numbers()), "cpus": "0-1"}]
            affinity = {
                "target": target,
                "before": before,
                "after": pick(("0", "1", "0-1", "0-9", "")),
                "kind": "affinity",
            }
            state = {
                "target": target | {"kind": "partition", "part": None},
                "before": member,
                "after": alone,
                "kind": "state",
            }
            plan["changes"].append(pick((affinity, state)) | {"reason": "so"})
        if self._random.random() < 0.3:
            plan["request"] |= {"processes": [str(pick(self._ids)) for _ in range(3)], "isolation": "live"}
        if self._random.random() < 0.2:
            plan |= {"purpose": "release", "wanted": []}

    def _numbers(self) -> list[int]:
        return [each for each in self._ids if isinstance(each, int)]

    def _change(self, call: dict[str, Any]) -> None:
        """Change, remove or double one random value of the call."""
        parent: Any = call
        while True:
            keys = list(parent) if isinstance(parent, dict) else list(range(len(parent)))
            if not keys:
                return
            key = self._random.choice(keys)
            if isinstance(parent[key], (dict, list)) and parent[key] and self._random.random() < 0.85:
                parent = parent[key]
                continue
            break
        match self._random.randrange(6):
            case 0:
                del parent[key]
            case 1 if isinstance(parent, list):
                parent.append(parent[key])
            case _:
                parent[key] = self._value(0)

    def _many(self) -> list[object]:
        return [self._random.choice(ITEMS)] * MANY

    def _value(self, depth: int) -> Any:
        if depth == 0 and self._random.random() < 0.02:
            return self._many()
        kind = self._random.randrange(8)
        if kind == 0:
            return self._random.choice(NUMBERS)
        if kind in (1, 2):
            chosen = self._random.choice(self._ids)
            return str(chosen) if self._random.random() < 0.5 else chosen
        if kind == 3 and depth < 4:
            return [self._value(depth + 1) for _ in range(self._random.randrange(4))]
        if kind == 4 and depth < 4:
            keys = (self._random.choice(TEXTS) for _ in range(self._random.randrange(4)))
            return {key: self._value(depth + 1) for key in keys}
        if kind == 5:
            return self._random.choice((None, True, False))
        return self._random.choice(TEXTS)
