"""Ways to configure nova-compute: files, folders, command lines, environments, substitutions, broken ones."""

from collections.abc import Mapping
from dataclasses import dataclass, field

NOVA, COMPUTE = "nova/nova.conf", "nova/nova-compute.conf"
DEDICATED = "[compute]\ncpu_dedicated_set = {}\n"


@dataclass(frozen=True)
class Variant:
    """One way. The files are below /etc; a file's content that begins with ``->`` is the target of a link, and a path
    that ends with a slash is a folder."""

    name: str
    files: Mapping[str, str]
    arguments: tuple[str, ...] = ()
    environment: Mapping[str, str] = field(default_factory=dict)
    folder: str = "/"
    reason: str = ""
    """Words that Nova's refusal and pinner's have in common; empty: none is expected."""


def one(cpus: object) -> str:
    """A file with this cpu_dedicated_set."""
    return DEDICATED.format(cpus)


HOME = {"HOME": "/etc/home"}
BOTH = "[compute]\ncpu_dedicated_set = 4-15\ncpu_shared_set = 0-3\n"
FIVE = {name: one(number) for number, name in enumerate(["a.conf", "nova/b.conf", "d/1.conf", "d/2.conf", "e/1.conf"])}

PLACES = (
    Variant("no file at all", {}),
    Variant("an empty file", {NOVA: ""}),
    Variant("both sets", {NOVA: BOTH}),
    Variant("the file of the program", {NOVA: BOTH, COMPUTE: one(5)}),
    Variant("the folder of the project", {NOVA: BOTH, "nova/nova.conf.d/1.conf": one(5)}),
    Variant(
        "the folder of the program",
        {NOVA: BOTH, "nova/nova.conf.d/1.conf": one(5), "nova/nova-compute.conf.d/0.conf": one(6)},
    ),
    Variant("names in a folder", {f"nova/nova.conf.d/{name}": one(n) for n, name in enumerate(
        [".9.conf", "1.conf", "02.conf", "9.txt", "9conf", "2.conf.bak", "A.conf"])}),
    Variant("the home's hidden folder", {NOVA: one(4), "home/.nova/nova.conf": one(5)}, (), HOME),
    Variant("the home", {NOVA: one(4), "home/nova.conf": one(5)}, (), HOME),
    Variant("no home", {NOVA: one(4), "home/nova.conf": one(5)}),
    Variant("the home's program file", {NOVA: one(4), "home/nova-compute.conf": one(5)}, (), HOME),
    Variant("the home's folder", {NOVA: one(4), "home/.nova/nova.conf.d/1.conf": one(5)}, (), HOME),
    Variant("/etc itself", {"nova.conf": one(4), "nova-compute.conf.d/1.conf": one(5)}),
    Variant("the snap's common folder", {"c/etc/nova/nova.conf": one(4)}, (), {"SNAP_COMMON": "/etc/c"}),
    Variant("the snap's folder", {"s/etc/nova/nova.conf": one(4)}, (), {"SNAP": "/etc/s"}),
    Variant("a relative home", {NOVA: one(4), "home/nova.conf": one(5)}, (), {"HOME": "home"}, "/etc"),
    Variant("a relative folder of the snap", {"s/etc/nova/nova.conf": one(4)}, (), {"SNAP": "s"}, "/etc"),
    Variant("both folders of the snap", {"c/etc/nova/nova.conf": one(4), "s/etc/nova/nova.conf": one(5)}, (),
        {"SNAP": "/etc/s", "SNAP_COMMON": "/etc/c"}),
    Variant("a snap with a file of the host", {NOVA: one(3), "c/etc/nova/nova.conf": one(4)}, (),
        {"SNAP_COMMON": "/etc/c"}),
    Variant("a link", {NOVA: "->/etc/other", "other": one(4)}),
    Variant("a link to a link", {NOVA: "->../x", "x": "->y", "y": one(4)}),
    Variant("a link in a folder", {"nova/nova.conf.d/1.conf": "->/etc/other", "other": one(4)}),
    Variant("a linked folder", {"nova/nova.conf.d": "->/etc/d", **FIVE}),
    Variant("a broken link as default file", {NOVA: "->/nowhere"}),
    Variant("a broken link in a folder", {"nova/nova.conf.d/1.conf": "->/nowhere"}, reason="1.conf"),
    Variant("a folder in a folder", {"nova/nova.conf.d/1.conf/": ""}, reason="1.conf"),
)  # fmt: skip

LINES = (
    Variant("a file", FIVE, ("--config-file", "/etc/a.conf")),
    Variant("a file with =", FIVE, ("--config-file=/etc/a.conf",)),
    Variant("a file overrides the default folder", {**FIVE, "nova/nova.conf.d/1.conf": one(9)},
        ("--config-file", "/etc/a.conf")),
    Variant("a file replaces the default files", {**FIVE, NOVA: BOTH, COMPUTE: BOTH}, ("--config-file", "/etc/a.conf")),
    Variant("Debian's files", {NOVA: BOTH, COMPUTE: one(5), "nova/nova.conf.d/1.conf": one(6)},
        ("--config-file=/etc/nova/nova.conf", "--config-file=/etc/nova/nova-compute.conf", "--log-file=/dev/null")),
    Variant("two files", FIVE, ("--config-file", "/etc/nova/b.conf", "--config-file", "/etc/a.conf")),
    Variant("a folder with default files", {**FIVE, NOVA: one(9)}, ("--config-dir", "/etc/d")),
    Variant("a folder replaces the default folders", {**FIVE, "nova/nova.conf.d/1.conf": BOTH},
        ("--config-dir", "/etc/d")),
    Variant("a folder, then a file", FIVE, ("--config-dir", "/etc/d", "--config-file", "/etc/a.conf")),
    Variant("a file, then a folder", FIVE, ("--config-file", "/etc/a.conf", "--config-dir=/etc/d")),
    Variant("two folders", FIVE, ("--config-dir", "/etc/e", "--config-dir", "/etc/d")),
    Variant("a file as folder", FIVE, ("--config-dir", "/etc/a.conf")),
    Variant("a shortened file", {**FIVE, NOVA: "[compute]\ncpu_shared_set = 9\n"}, ("--config-f", "/etc/a.conf")),
    Variant("a shortened folder", {**FIVE, "nova/nova.conf.d/1.conf": "[compute]\ncpu_shared_set = 9\n"},
        ("--config-d=/etc/d",)),
    Variant("other options", FIVE, ("--debug", "--config-file", "/etc/a.conf", "--log-dir", "/dev", "--use-syslog")),
    Variant("a relative file", FIVE, ("--config-file", "nova/b.conf"), folder="/etc"),
    Variant("a relative file with ..", FIVE, ("--config-file", "../a.conf"), folder="/etc/nova"),
    Variant("a relative folder", FIVE, ("--config-dir", "d"), folder="/etc"),
    Variant("a file in the home", {"home/a.conf": one(7)}, ("--config-file", "~/a.conf"), HOME),
    Variant("a folder in the home", {"home/d/1.conf": one(7)}, ("--config-dir", "~/d"), HOME),
    Variant("a file in the home of a user", {"root/a.conf": one(7)}, ("--config-file", "~root/a.conf")),
    Variant("a folder in the home of a user", {"root/d/1.conf": one(7)}, ("--config-dir", "~root/d")),
    Variant("the home of an unknown user", FIVE, ("--config-file", "~nobody/a.conf"), reason="/~nobody/a.conf"),
    Variant("an empty folder name", {"nova/nova.conf": BOTH, "z.conf": one(9)}, ("--config-dir=",), folder="/etc",
        reason="conf"),
    Variant("a file that does not exist", FIVE, ("--config-file", "/etc/z.conf"), reason="/etc/z.conf"),
    Variant("a folder that does not exist", FIVE, ("--config-dir", "/etc/z"), reason="/etc/z"),
    Variant("a folder as file", FIVE, ("--config-file", "/etc/d"), reason="/etc/d"),
    Variant("no path", FIVE, ("--config-file",), reason="config-file"),
    Variant("an ambiguous option", FIVE, ("--config", "/etc/a.conf"), reason="config"),
)  # fmt: skip


def environment(name: str, text: str, reason: str = "", **variables: str) -> Variant:
    """A way by variables of the environment."""
    return Variant(name, {NOVA: text}, (), {f"OS_{option}": value for option, value in variables.items()}, "/", reason)


ENVIRONMENTS = (
    environment("a variable", BOTH, COMPUTE__CPU_DEDICATED_SET="8"),
    environment("variables alone", "", COMPUTE__CPU_DEDICATED_SET="8", COMPUTE__CPU_SHARED_SET="0-3"),
    environment("a variable of DEFAULT", "", DEFAULT__VCPU_PIN_SET="4-7"),
    environment("an empty variable", BOTH, COMPUTE__CPU_DEDICATED_SET=""),
    environment("a variable of lower case", BOTH, compute__cpu_dedicated_set="8"),
    environment("a variable that names an option", BOTH, COMPUTE__CPU_SHARED_SET="$reserved_host_cpus"),
    environment("a blank variable", BOTH, "' '", COMPUTE__CPU_DEDICATED_SET=" "),
    environment("a quoted variable", BOTH, '"8"', COMPUTE__CPU_DEDICATED_SET='"8"'),
    environment("reserved CPUs in a variable", BOTH, "reserved_host_cpus", DEFAULT__RESERVED_HOST_CPUS="2"),
    environment("a wrong number in a variable", BOTH, "reserved_host_cpus", DEFAULT__RESERVED_HOST_CPUS="two"),
)


def compute(name: str, lines: str, reason: str = "") -> Variant:
    """A way by lines of [compute]."""
    return Variant(name, {NOVA: f"[compute]\n{lines}\n"}, reason=reason)


def default(name: str, lines: str, reason: str = "") -> Variant:
    """A way by lines of [DEFAULT]."""
    return Variant(name, {NOVA: f"[DEFAULT]\n{lines}\n"}, reason=reason)


SUBSTITUTIONS = (
    compute("another set without its CPUs", "cpu_dedicated_set = 4-7\ncpu_shared_set = ${cpu_dedicated_set},^4-7,0-3"),
    compute("overlap by substitution", "cpu_dedicated_set = 4-7\ncpu_shared_set = 0-3,$cpu_dedicated_set",
        "cpu_shared_set"),
    default("an option of DEFAULT", "vcpu_pin_set = 0-3\n[compute]\ncpu_shared_set = $vcpu_pin_set"),
    default("an option of a section", "vcpu_pin_set = $compute.cpu_shared_set\n[compute]\ncpu_shared_set = 0-3"),
    compute("a number", "cpu_shared_set = $reserved_host_cpus-3"),
    compute("an option that is not set", "cpu_shared_set = $vcpu_pin_set"),
    compute("a dollar", r"cpu_shared_set = 0-3\$", "0-3$"),
    compute("two dollars", "cpu_shared_set = 0-3$$", "0-3$"),
    compute("an option that does not exist", "cpu_shared_set = $nosuch", "nosuch"),
    default("an option that Nova does not have", "my_set = 4-7\n[compute]\ncpu_shared_set = $my_set", "my_set"),
    compute("an option of Nova with its default", "cpu_shared_set = 0-$max_concurrent_builds"),
    default("an option of Nova with a value",
        "max_concurrent_builds = 5\n[compute]\ncpu_shared_set = 0-$max_concurrent_builds"),
    compute("an option of Nova in its section", "cpu_shared_set = 0-$scheduler.max_attempts"),
    compute("a section", "cpu_shared_set = $compute", "compute"),
    compute("options in a circle", "cpu_shared_set = $cpu_dedicated_set\ncpu_dedicated_set = $cpu_shared_set",
        "recursion"),
)  # fmt: skip

LISTS = (
    *(compute(f"the list {text!r}", f"cpu_dedicated_set = {text}") for text in (
        "4", "4-7", "0-7,^3", "^3,0-7", "0-7,^2-3", "4 - 7 , 9", ",,4,", "+4", "1_0", "04", '"4-7"', "'4-7'", "^ 3,0-7",
        "4-7,\n  8-9", "4\n ,5", "٤")),
    *(compute(f"the list {text!r}", f"cpu_dedicated_set = {text}", repr(part or text)) for text, part in (
        ("4 5", ""), ("0-31:2/8", ""), ("7-4", ""), ("1-2-3", ""), ("-3", ""), ("4-", ""), ("0x4", ""), ("4;5", ""),
        ("4-7 # text", ""), ("^^4", ""), ("4,^", "^"), ("a", ""), ("4-b", ""), ("4.0", ""), ('"4', ""),
        ("4,^x", "^x"))),
    compute("only an exclusion", "cpu_dedicated_set = ^4", "'^4'"),
    compute("only a comma", "cpu_dedicated_set = ,", "','"),
    compute("a wrong shared set", "cpu_shared_set = 4 5", "'4 5'"),
    default("a wrong vcpu_pin_set", "vcpu_pin_set = 4 5", "'4 5'"),
)  # fmt: skip

OPTIONS = (
    default("vcpu_pin_set", "vcpu_pin_set = 0-7"),
    default("vcpu_pin_set and a shared set", "vcpu_pin_set = 0-7\n[compute]\ncpu_shared_set = 8"),
    default("reserved CPUs and vcpu_pin_set", "vcpu_pin_set = 0-7\nreserved_host_cpus = 2"),
    default("reserved CPUs alone", "reserved_host_cpus = 2"),
    default("reserved CPUs and a set", f"reserved_host_cpus = 2\n{BOTH}", "reserved_host_cpus"),
    default("negative reserved CPUs", "reserved_host_cpus = -1", "reserved_host_cpus"),
    default("vcpu_pin_set and a dedicated set", f"vcpu_pin_set = 0-3\n{BOTH}", "vcpu_pin_set"),
    compute("overlap", "cpu_dedicated_set = 4-7\ncpu_shared_set = 0-4", "cpu_shared_set"),
    default("an old section", "notification_format = both"),
    default("a wrong format", "notification_format = all", "notification_format"),
    Variant("a wrong boolean", {NOVA: "[libvirt]\ncpu_power_management = maybe\n"}, reason="cpu_power_management"),
    compute("an option twice", "cpu_dedicated_set = 4\ncpu_dedicated_set = 5"),
    compute("a section twice", "cpu_dedicated_set = 4\n[DEFAULT]\n[compute]\ncpu_dedicated_set = 5"),
    Variant("a section in capitals", {NOVA: "[COMPUTE]\ncpu_dedicated_set = 4\n"}),
    compute("an option in capitals", "CPU_DEDICATED_SET = 4"),
    compute("a colon", "cpu_dedicated_set: 4"),
    compute("Windows' lines", "cpu_dedicated_set = 4\r\ncpu_shared_set = 5\r"),
    compute("an option with dashes", "cpu-dedicated-set = 4"),
    Variant("no section", {NOVA: "cpu_dedicated_set = 4\n"}, reason="nova.conf:1"),
    compute("no value", "cpu_dedicated_set", "nova.conf:2"),
    compute("an empty value", "cpu_dedicated_set ="),
    Variant("an open section", {NOVA: "[compute\n"}, reason="nova.conf:1"),
    Variant("an indented first line", {NOVA: " [compute]\n"}, reason="nova.conf:1"),
    Variant("bytes that are no text", {NOVA: "[compute]\n# \udcff\n"}, reason="codec can't decode byte 0xff"),
)  # fmt: skip


VARIANTS = (*PLACES, *LINES, *ENVIRONMENTS, *SUBSTITUTIONS, *LISTS, *OPTIONS)
