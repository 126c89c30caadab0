"""A made-up guest behind its QEMU guest agent: files by path, and answers that a hostile guest may give."""

import base64
import json
from dataclasses import replace

from support import hosts
from support.hosts import cpus

from pinner.model.errors import ApplyFailed, Busy
from pinner.model.guest.guest import Tap

UUID = "00000000-0000-0000-0000-000000000001"
BOOT = "11111111-2222-3333-4444-555555555555"
MAC = "52:54:00:00:00:01"
NET = "/sys/class/net"
INTERRUPTS = "/proc/interrupts"
RMEM_MAX, RMEM_DEFAULT = "/proc/sys/net/core/rmem_max", "/proc/sys/net/core/rmem_default"
SNMP, SOFTIRQS = "/proc/net/snmp", "/proc/softirqs"
ENTRIES = "/proc/sys/net/core/rps_sock_flow_entries"

NO_FILE = (
    "libvirt: internal error: unable to execute QEMU agent command 'guest-file-open': failed to open file '{}' "
    "(mode: 'r'): No such file or directory"
)
HUNG = Busy("guest", "libvirt: guest agent is not responding", overdue=False)
ANSWERS = {
    "huge": "x" * 100_000_000,
    "no JSON": "{",
    "deep": "[" * 200_000,
    "digits": '{"return": ' + "9" * 5000 + "}",
    "list": "[]",
    "no return": '{"error": {"class": "GenericError", "desc": "\\u001b[2J"}}',
    "null": '{"return": null}',
    "text": '{"return": "\\u001b]0;x\\u0007"}',
    "true": '{"return": true}',
    "negative": '{"return": -1}',
    "surrogate": '{"return": {"buf-b64": "\\ud800"}}',
    "no base64": '{"return": {"buf-b64": "%%%"}}',
    "long file": json.dumps({"return": {"buf-b64": "MDAw" * 200_000}}),
    "no text": json.dumps({"return": {"buf-b64": "/////w=="}}),
    "number": '{"return": {"buf-b64": 7}}',
}
"""Of a hostile guest."""


def guest(number=1, vcpus=4, mac=MAC, **more):
    made = hosts.guest(number, vcpus, cpus("0-15"))
    return replace(made, **{"uuid": UUID, "taps": (Tap("tap1", mac, 0, 0, 0, 0),), **more})


def queue_path(number, name="eth0"):
    return f"{NET}/{name}/queues/rx-{number}/rps_cpus"


def flow_path(number, name="eth0"):
    return f"{NET}/{name}/queues/rx-{number}/rps_flow_cnt"


def irq_path(number):
    return f"/proc/irq/{number}/smp_affinity_list"


def table(queues):
    """/proc/interrupts of a guest with a disk, and a card (virtio1) with interrupts from 27 on."""
    names = [f"virtio1-{way}.{number}" for number in range(queues) for way in ("input", "output")]
    rows = {1: "i8042", 24: "virtio0-config", 25: "virtio0-req.0", 26: "virtio1-config", **dict(enumerate(names, 27))}
    lines = [f"{number:4}: {7 * number:10} {0:10}   PCI-MSI 65536-edge      {name}" for number, name in rows.items()]
    return "\n".join(["            CPU0       CPU1", *lines, " NMI:          0          0   Non-maskable", ""])


class MadeUpGuest:
    """Satisfies Agents. ``hostile`` gives the answer to a command in place of the guest's own; an error is raised."""

    def __init__(self, queues=1, online="0-3"):
        self.files = {
            "/proc/sys/kernel/random/boot_id": f"{BOOT}\n",
            "/sys/devices/system/cpu/online": f"{online}\n",
            f"{NET}/lo/ifindex": "1\n",
            f"{NET}/eth0/ifindex": "2\n",
            f"{NET}/eth0/device/modalias": "virtio:d00000001v00001AF4\n",
            ENTRIES: "0\n",
            SOFTIRQS: "        CPU0   CPU1\n      HI:    5    0\n  NET_RX:   90    0\n   SCHED:    7    8\n",
            RMEM_MAX: "212992\n",
            RMEM_DEFAULT: "212992\n",
            SNMP: "Tcp: RtoMin\nTcp: 200\nUdp: InDatagrams RcvbufErrors\nUdp: 99 0\nUdpLite: A\nUdpLite: 1\n",
            "/sys/bus/virtio/devices/virtio1/net/eth0/ifindex": "2\n",
            INTERRUPTS: table(queues),
            **{irq_path(number): f"{online}\n" for number in range(27, 27 + 2 * queues)},
            **{queue_path(number): "0\n" for number in range(queues)},
            **{flow_path(number): "0\n" for number in range(queues)},
        }
        self.interfaces = [{"name": "eth0", "hardware-address": MAC}, {"name": "lo", "hardware-address": "00:00:00"}]
        self.hostile = {}
        self.refused = {}
        """The agent's words, by path."""
        self.system = {"id": "debian", "pretty-name": "Debian GNU/Linux 12 (bookworm)"}
        self.asked = []
        self.open = {}
        self.before = lambda: None
        """Called before each answer."""
        self.lies = False
        """Whether the guest takes what is written, and keeps what it had."""

    def ask_guest_agent(self, guest, command):
        self.before()
        asked = json.loads(command)
        self.asked.append(asked["execute"])
        given = self.hostile.get(asked["execute"])
        if isinstance(given, Exception):
            raise given
        if given is not None:
            return given
        return json.dumps({"return": self._do(asked["execute"], asked.get("arguments", {}))})

    def _do(self, command, given):
        match command:
            case "guest-network-get-interfaces":
                return self.interfaces
            case "guest-get-osinfo":
                return self.system
            case "guest-file-open":
                if given["path"] in self.refused or given["path"] not in self.files:
                    raise ApplyFailed("guest", self.refused.get(given["path"], NO_FILE.format(given["path"])))
                self.open[len(self.asked)] = [given["path"], ""]
                return len(self.asked)
            case "guest-file-read":
                whole = self.files[self.open[given["handle"]][0]]
                content = whole[: given["count"]]
                encoded = base64.b64encode(content.encode()).decode()
                return {"count": len(content), "buf-b64": encoded, "eof": content == whole}
            case "guest-file-write":
                self.open[given["handle"]][1] = base64.b64decode(given["buf-b64"]).decode()
                return {"count": 1, "eof": False}
            case "guest-file-flush":
                path, content = self.open[given["handle"]]
                if not self.lies:
                    self.files[path] = content
                return {}
            case "guest-file-close":
                del self.open[given["handle"]]
                return {}
        raise AssertionError(command)
