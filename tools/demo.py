"""pinner's main job from nothing to an exact undo, as a user does it: `make demo`, `make demo KEEP=1`."""

import argparse
import os
import signal
import subprocess
import sys
import time
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager, suppress
from pathlib import Path

import demo_stage as stage
import httpx
from demo_stage import say

SPAN_SECONDS = 6
Masks = dict[int, str]
"""Thread id to its Cpus_allowed_list."""


class Demo:
    """The play: each step is a call of the REST API or of the CLI against the same server."""

    def __init__(self, url: str, guests: tuple[str, ...], daemon: int) -> None:
        self.url = url
        self.http = httpx.Client(base_url=url, timeout=60)
        self.guests = guests
        self.daemon = daemon
        self.host = self.get("/v1/hosts")["items"][0]["name"]

    def get(self, path: str, **query: str) -> dict:
        """GET as JSON."""
        return self.http.get(path, params=query).raise_for_status().json()

    def post(self, path: str, body: dict) -> dict:
        """POST as JSON."""
        answer = self.http.post(path, json=body)
        if answer.is_error:
            raise SystemExit(f"POST {path}: {answer.text}")
        return answer.json()

    def cli(self, *words: str) -> None:
        """Run the CLI before the spectator's eyes."""
        print(f"\n$ pinner {' '.join(words)}", flush=True)
        subprocess.run([str(stage.BIN / "pinner"), *words], check=True, env={**os.environ, "PINNER_URL": self.url})

    def threads(self) -> dict[str, dict[int, dict]]:
        """The guests' threads by label (guest, role), as pinner's inventory has them."""
        found: dict[str, dict[int, dict]] = {}
        for guest in self.get(f"/v1/hosts/{self.host}/guests")["items"]:
            if guest["name"] not in self.guests:
                continue
            emulator = [*guest["emulator"]["threads"], *guest["helpers"]]
            found[f"{guest['name']} emulator"] = {thread["tid"]: thread for thread in emulator}
            for kind in ("vcpu", "iothread"):
                for part in guest[f"{kind}s"]:
                    found[f"{guest['name']} {kind} {part['id']}"] = {part["thread"]["tid"]: part["thread"]}
        return found
