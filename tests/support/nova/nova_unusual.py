"""Unusual ways to configure nova-compute, by class: a file is written strangely, named strangely or read strangely."""

from collections.abc import Iterator

from support.nova.nova_variants import BOTH, COMPUTE, FIVE, NOVA, Variant, one

Row = tuple[str, str, str]
"""Name, content of nova.conf, and the words that both refusals have in common (empty: none is expected)."""
SHARED = "[compute]\ncpu_shared_set = 0-3\n"
FOLDER = "nova/nova.conf.d"
SNAP = {"SNAP_COMMON": "/etc/c"}

FOLDERS = (
    Variant("only names that do not count", {NOVA: BOTH, f"{FOLDER}/a.conf~": one(5), f"{FOLDER}/conf": one(6)}),
    Variant("an empty folder", {NOVA: BOTH, f"{FOLDER}/": ""}),
    Variant("names by their bytes", {f"{FOLDER}/{name}.conf": one(n) for n, name in enumerate(["a", "B", "_", "9"])}),
    Variant("names of other letters", {f"{FOLDER}/é.conf": one(5), f"{FOLDER}/z.conf": one(6)}),
    Variant("numbers of different length", {f"{FOLDER}/{name}.conf": one(name) for name in ("2", "10", "9", "100")}),
    Variant("a name of bytes", {f"{FOLDER}/\udcff.conf": one(5), f"{FOLDER}/z.conf": one(6)}),
    Variant("a name with blanks", {f"{FOLDER}/ a b .conf": one(5), f"{FOLDER}/ z.conf": one(6)}),
    Variant("a name with a pattern", {f"{FOLDER}/[a].conf": one(5), f"{FOLDER}/*.conf": one(6)}),
    Variant("an ending of capitals", {NOVA: BOTH, f"{FOLDER}/a.CONF": one(5)}),
    Variant("two endings", {f"{FOLDER}/a.conf.conf": one(5), f"{FOLDER}/a.conf": one(6)}),
    Variant("an empty file in a folder", {NOVA: BOTH, f"{FOLDER}/a.conf": ""}),
    Variant("a folder below a folder", {NOVA: BOTH, f"{FOLDER}/d/a.conf": one(5)}),
    Variant("a file in the place of a folder", {NOVA: BOTH, FOLDER: one(5)}),
    Variant("a folder in the place of a file", {f"{NOVA}/": "", "nova.conf": one(5)}, reason=NOVA),
    Variant("a set of a folder, a set of a file", {NOVA: SHARED, f"{FOLDER}/a.conf": one(5)}),
    Variant("a folder that empties a set", {NOVA: BOTH, f"{FOLDER}/a.conf": one("")}),
    Variant("an overlap of two files", {NOVA: SHARED, COMPUTE: one("3-5")}, reason="cpu_shared_set"),
    Variant("a value that names a set of a later file",
        {NOVA: "[compute]\ncpu_shared_set = ${cpu_dedicated_set},^4-7,1\n", COMPUTE: one("4-7")}),
)  # fmt: skip

LINKS = (
    Variant("a loop of one link as default file", {NOVA: "->nova.conf", "nova.conf": one(5)}),
    Variant("a loop of two links as default file", {NOVA: "->b", "nova/b": "->nova.conf", "nova.conf": one(5)}),
    Variant("a loop in a folder", {f"{FOLDER}/1.conf": "->1.conf"}, reason="1.conf"),
    Variant("a loop as folder", {NOVA: BOTH, FOLDER: "->nova.conf.d"}),
    Variant("a loop of the command line", {"a.conf": "->a.conf"}, ("--config-file", "/etc/a.conf"), reason="a.conf"),
    Variant("a loop as folder of the command line", {"d": "->d"}, ("--config-dir", "/etc/d"), reason="/etc/d"),
    Variant("a link to the folder above", {NOVA: one(4), f"{FOLDER}/1.conf": "->../../../etc/x", "x": one(5)}),
    Variant("a link out of the root", {NOVA: "->../../../../../../etc/x", "x": one(5)}),
    Variant("a linked folder in the middle",
        {"home": "->real", "real/nova.conf": one(4), "real/nova.conf.d/1.conf": one(5)}, (), {"HOME": "/etc/home"}),
    Variant("a masked file in a folder", {NOVA: BOTH, f"{FOLDER}/1.conf": "->/dev/null"}),
    Variant("a masked default file", {NOVA: "->/dev/null", f"{FOLDER}/1.conf": one(5)}),
    Variant(".. after a link is its text", {**FIVE, "l": "->d/x", "d/x/": "", "d/a.conf": one(9)},
        ("--config-file", "/etc/l/../a.conf")),
    Variant("many links", {NOVA: "->/etc/l1", **{f"l{n}": f"->l{n + 1}" for n in range(1, 38)}, "l38": one(5)}),
    Variant("too many links", {NOVA: "->/etc/l1", **{f"l{n}": f"->l{n + 1}" for n in range(1, 50)}, "l50": one(5),
        "nova.conf": one(6)}),
)  # fmt: skip

LINES = (
    Variant("a file twice", FIVE, ("--config-file", "/etc/a.conf") * 2),
    Variant("a folder twice, a file between", FIVE,
        ("--config-dir", "/etc/d", "--config-file", "/etc/a.conf", "--config-dir", "/etc/d")),
    Variant("three files", FIVE,
        ("--config-file=/etc/nova/b.conf", "--config-file=/etc/d/2.conf", "--config-file", "/etc/a.conf")),
    Variant("a folder with a slash", FIVE, ("--config-dir", "/etc/d/")),
    Variant("a folder with dots", FIVE, ("--config-dir", "/etc/d/./../e/.")),
    Variant("two slashes", FIVE, ("--config-file", "//etc//a.conf")),
    Variant("an empty file name", FIVE, ("--config-file=",), folder="/etc", reason="/etc"),
    Variant("the folder of the process", {"1.conf": one(5)}, ("--config-dir", "."), folder="/etc"),
    Variant("a file with an equals sign", {"a=b.conf": one(5)}, ("--config-file=/etc/a=b.conf",)),
    Variant("a file with a blank", {"a b.conf": one(5)}, ("--config-file", "/etc/a b.conf")),
    Variant("a file with bytes", {"\udcff.conf": one(5)}, ("--config-file", "/etc/\udcff.conf")),
    Variant("a file of any ending", {"a.txt": one(5)}, ("--config-file", "/etc/a.txt")),
    Variant("a hidden file", {".a": one(5)}, ("--config-file", "/etc/.a")),
    Variant("an empty device", {NOVA: BOTH}, ("--config-file", "/dev/null")),
    Variant("an option with the value of another", FIVE, ("--log-dir=--config-file", "--config-file", "/etc/a.conf")),
    Variant("a shortened and a full name", {**FIVE, NOVA: one(9)},
        ("--config-fil", "/etc/a.conf", "--config-file", "/etc/nova/b.conf")),
    Variant("a shortened folder over the default", {**FIVE, f"{FOLDER}/1.conf": one(9)}, ("--config-di", "/etc/d")),
    Variant("a folder, and a variable", FIVE, ("--config-dir", "/etc/d"), {"OS_COMPUTE__CPU_DEDICATED_SET": "9"}),
    Variant("the home of root", {"root/a.conf": one(5)}, ("--config-file", "~root/../root/a.conf")),
    Variant("a home with a slash", {"home/a.conf": one(5)}, ("--config-file", "~/a.conf"), {"HOME": "/etc/home//"}),
    Variant("an empty home", {"nova.conf": one(5)}, ("--config-file", "~/etc/nova.conf"), {"HOME": ""}),
    Variant("the root as home", {"nova.conf": one(5)}, ("--config-file", "~/etc/nova.conf"), {"HOME": "/"}),
    Variant("a snap with folders", {"c/etc/nova/nova.conf": one(4), "c/etc/nova/nova.conf.d/1.conf": one(5)}, (), SNAP),
    Variant("Sunbeam's snap", {"c/etc/nova/nova.conf": BOTH, "c/etc/nova/nova.conf.d/1.conf": one(5)},
        ("--config-file", "/etc/c/etc/nova/nova.conf", "--config-dir", "/etc/c/etc/nova/nova.conf.d"), SNAP),
    Variant("an empty variable of the snap", {NOVA: BOTH, "etc/nova/nova.conf": one(9)}, (), {"SNAP": ""}, "/etc"),
    Variant("RHOSO's blank file and folder", {"nova/nova-blank.conf": "", "nova/nova.conf.d/01-nova.conf": BOTH,
        "nova/nova.conf.d/25-nova-extra.conf": one(5), NOVA: one(9)},
        ("--config-file", "/etc/nova/nova-blank.conf", "--config-dir", "/etc/nova/nova.conf.d")),
)  # fmt: skip


def variables(name: str, text: str, reason: str = "", **found: str) -> Variant:
    """A way by variables of the environment, each without its OS_."""
    return Variant(name, {NOVA: text}, (), {f"OS_{option}": value for option, value in found.items()}, "/", reason)


ENVIRONMENTS = (
    variables("a variable against all files", BOTH, COMPUTE__CPU_SHARED_SET="1"),
    variables("a variable with one underscore", BOTH, COMPUTE_CPU_SHARED_SET="1"),
    variables("a variable without a section", BOTH, CPU_SHARED_SET="1", __CPU_SHARED_SET="2"),
    variables("a variable of another section", BOTH, DEFAULT__CPU_SHARED_SET="1", LIBVIRT__CPU_SHARED_SET="2"),
    variables("a variable of mixed case", BOTH, COMPUTE__cpu_shared_set="1", Compute__CPU_SHARED_SET="2"),
    variables("a variable with an exclusion", BOTH, COMPUTE__CPU_SHARED_SET="0-3,^1"),
    variables("a variable of several lines", BOTH, COMPUTE__CPU_SHARED_SET="0,\n 1"),
    variables("a variable that runs backwards", BOTH, "'3-0'", COMPUTE__CPU_SHARED_SET="3-0"),
    variables("a variable with a comment", BOTH, "0 # 1", COMPUTE__CPU_SHARED_SET="0 # 1"),
    variables("a variable of bytes", BOTH, "", COMPUTE__X="\udcff"),
    variables("a set of letters", BOTH, "'é'", COMPUTE__CPU_SHARED_SET="é"),
    variables("a variable that names a variable", BOTH, COMPUTE__CPU_SHARED_SET="0-$quota.cores", QUOTA__CORES="2"),
    variables("a variable that overlaps a file", BOTH, "cpu_shared_set", COMPUTE__CPU_SHARED_SET="4"),
    variables("a variable that ends an overlap", BOTH.replace("0-3", "0-4"), COMPUTE__CPU_SHARED_SET="0-3"),
    variables("an old name as variable", "", "", DEFAULT__NOTIFICATION_FORMAT="both"),
    variables("a wrong format as variable", "", "notification_format", NOTIFICATIONS__NOTIFICATION_FORMAT="all"),
    variables("a wrong boolean as variable", BOTH, "cpu_power_management", LIBVIRT__CPU_POWER_MANAGEMENT="maybe"),
    variables("empty reserved CPUs as variable", BOTH, "", DEFAULT__RESERVED_HOST_CPUS=""),
    variables("negative reserved CPUs as variable", "", "reserved_host_cpus", DEFAULT__RESERVED_HOST_CPUS="-1"),
    variables("vcpu_pin_set as variable, and sets", BOTH, "vcpu_pin_set", DEFAULT__VCPU_PIN_SET="0"),
)  # fmt: skip


def written(rows: tuple[Row, ...]) -> Iterator[Variant]:
    """A way for each row."""
    for name, text, reason in rows:
        yield Variant(name, {NOVA: text}, reason=reason)


def shared(*values: str, reason: str = "") -> Iterator[Variant]:
    """A way for each value of cpu_shared_set."""
    for value in values:
        yield Variant(f"the value {value!r}"[:60], {NOVA: f"[compute]\ncpu_shared_set = {value}\n"}, reason=reason)


TEXTS = tuple(written((
    ("a byte order mark", "\ufeff" + BOTH, "nova.conf:1"),
    ("a byte order mark after a comment", "# x\n\ufeff[compute]\ncpu_shared_set = 1\n", "nova.conf:2"),
    ("UTF-16", BOTH.encode("utf-16").decode("utf-8", "surrogateescape"), "codec can't decode byte 0xff"),
    ("bytes of Latin-1 in a comment", "# Gr\udcfcn\n" + BOTH, "codec can't decode byte 0xfc"),
    ("a surrogate as UTF-8", "# \udced\udca0\udc80\n" + BOTH, "codec can't decode byte 0xed"),
    ("NUL in a value", "[compute]\ncpu_shared_set = 1\0\n", r"'1\x00'"),
    ("NUL in a comment", "# \0\n" + BOTH, ""),
    ("only a carriage return", BOTH.replace("\n", "\r"), ""),
    ("no line feed at the end", BOTH.rstrip("\n"), ""),
    ("a form feed", BOTH.replace("\n[", "\n\f["), ""),
    ("a line separator of Unicode", "[compute]\ncpu_shared_set = 1\u2028cpu_dedicated_set = 2\n", "1"),
    ("a no-break space", "[compute]\ncpu_shared_set =\u00a01\u00a0\n", ""),
    ("a value of several lines", "[compute]\ncpu_shared_set = 0-3,\n\t4,\n  ^1\n", ""),
    ("a value of several lines without commas", "[compute]\ncpu_shared_set = 0-3\n  4\n", r"'0-3\n4'"),
    ("a value that begins on the next line", "[compute]\ncpu_shared_set =\n  0-3\n", ""),
    ("an empty line in a value", "[compute]\ncpu_shared_set = 0,\n\n  1\n", "nova.conf"),
    ("a comment in a value", "[compute]\ncpu_shared_set = 0,\n# x\n  1\n", "nova.conf:4"),
    ("an indented comment in a value", "[compute]\ncpu_shared_set = 0,\n  # x\n  1\n", r"'# x\n1'"),
    ("an indented section", "[compute]\ncpu_shared_set = 0\n  [libvirt]\n", r"'0\n[libvirt]'"),
    ("an indented option", "[compute]\ncpu_shared_set = 0\n  cpu_dedicated_set = 4\n", "cpu"),
    ("a blank in a section", "[ compute ]\ncpu_shared_set = 0\n", ""),
    ("a comment after a section", "[compute] # x\ncpu_shared_set = 0\n", "nova.conf:1"),
    ("an empty section", "[]\n[compute]\ncpu_shared_set = 0\n", "nova.conf:1"),
    ("a section in brackets", "[[compute]]\ncpu_shared_set = 0\n", ""),
    ("no name of an option", "[compute]\n= 4\n", "nova.conf:2"),
    ("blanks around a name", "[compute]\ncpu_shared_set   =   0   \n", ""),
    ("two signs", "[compute]\ncpu_shared_set == 0\n", "'= 0'"),
    ("a colon before the sign", "[compute]\ncpu_shared_set := 0\n", "'= 0'"),
    ("a semicolon as comment", "; x\n[compute]\n;cpu_shared_set = 1\ncpu_shared_set = 0\n", ""),
    ("both sets empty", "[compute]\ncpu_shared_set =\ncpu_dedicated_set =\n", ""),
    ("both sets empty, and reserved CPUs", "[DEFAULT]\nreserved_host_cpus = 2\n[compute]\ncpu_shared_set =\n", ""),
    ("an empty set after a set", "[compute]\ncpu_shared_set = 1\ncpu_shared_set =\n", ""),
    ("a set after an empty set", "[compute]\ncpu_shared_set =\ncpu_shared_set = 1\n", ""),
    ("a set in two writings", "[compute]\ncpu_shared_set = 1\ncpu-shared-set = 2\n", ""),
    ("an option of another section", "[libvirt]\ncpu_shared_set = 1\n[DEFAULT]\ncpu_dedicated_set = 2\n", ""),
    ("vcpu_pin_set in another section", "[compute]\nvcpu_pin_set = 1\n[libvirt]\nvcpu_pin_set = 2\n", ""),
    ("vcpu_pin_set with dashes", "[DEFAULT]\nvcpu-pin-set = 1-3\n", ""),
    ("vcpu_pin_set twice", "[DEFAULT]\nvcpu_pin_set = 1-3\nvcpu_pin_set = 4\n", ""),
    ("an empty vcpu_pin_set", "[DEFAULT]\nvcpu_pin_set =\n" + BOTH, ""),
    ("a wrong vcpu_pin_set beside a set", "[DEFAULT]\nvcpu_pin_set = x\n[compute]\ncpu_dedicated_set = 1\n", "'x'"),
    ("the name of a later Nova", "[compute]\ncpu_shared_sets = 1\n[cpu]\nshared_set = 2\n", ""),
    ("reserved CPUs of blanks", "[DEFAULT]\nreserved_host_cpus =   \n" + BOTH, ""),
    ("reserved CPUs in quotes", "[DEFAULT]\nreserved_host_cpus = \"0\"\n" + BOTH, ""),
    ("reserved CPUs as a fraction", "[DEFAULT]\nreserved_host_cpus = 0.0\n" + BOTH, "reserved_host_cpus"),
    ("reserved CPUs of another script", "[DEFAULT]\nreserved_host_cpus = ٢\n" + BOTH, "reserved_host_cpus"),
    ("reserved CPUs by $", "[DEFAULT]\nreserved_host_cpus = $max_concurrent_builds\n" + BOTH, "reserved_host_cpus"),
    ("a boolean in quotes", "[libvirt]\ncpu_power_management = \"true\"\n" + BOTH, ""),
    ("an empty boolean", "[libvirt]\ncpu_power_management =\n" + BOTH, "cpu_power_management"),
    ("a wrong strategy of power management",
        "[libvirt]\ncpu_power_management = true\ncpu_power_management_strategy = off\n" + BOTH,
        "cpu_power_management_strategy"),
    ("a wrong strategy without power management", "[libvirt]\ncpu_power_management_strategy = off\n" + BOTH, ""),
    ("a strategy of capitals",
        "[libvirt]\ncpu_power_management = true\ncpu_power_management_strategy = Governor\n" + BOTH,
        "cpu_power_management_strategy"),
    ("a governor by $ of itself",
        "[libvirt]\ncpu_power_management = true\ncpu_power_management_strategy = governor\n"
        "cpu_power_governor_high = $libvirt.cpu_power_governor_low\n" + BOTH, ""),
    ("power management without a dedicated set", "[libvirt]\ncpu_power_management = true\n" + SHARED, ""),
    ("an empty format", "[notifications]\nnotification_format =\n" + BOTH, "notification_format"),
    ("a format of capitals", "[notifications]\nnotification_format = BOTH\n" + BOTH, "notification_format"),
    ("a format in both sections",
        "[DEFAULT]\nnotification_format = x\n[notifications]\nnotification_format = both\n", ""),
)))  # fmt: skip

REFERENCES = (
    *shared("$compute.cpu_dedicated_set,1", "${compute.cpu_dedicated_set},1", "0-$reserved_host_cpus,",
        "${reserved_host_cpus}", "0${reserved_host_cpus}3", "$reserved_host_cpus$reserved_host_cpus",
        '"$reserved_host_cpus"'),
    *written((
        ("an open brace", "[compute]\ncpu_shared_set = ${reserved_host_cpus\n", "'${reserved_host_cpus'"),
        ("empty braces", "[compute]\ncpu_shared_set = ${}\n", "'${}'"),
        ("a dollar alone", "[compute]\ncpu_shared_set = $\n", "$"),
        ("a dollar and a number", "[compute]\ncpu_shared_set = $1\n", "$1"),
        ("a section that does not exist", "[compute]\ncpu_shared_set = $nosuch.option\n", "nosuch"),
        ("an option that does not exist in a section", "[compute]\ncpu_shared_set = $compute.nosuch\n", "nosuch"),
        ("a point at the end", "[compute]\ncpu_shared_set = 0-$reserved_host_cpus.\n", "reserved_host_cpus"),
        ("a dash after a name", "[compute]\ncpu_shared_set = $reserved-host-cpus\n", "reserved"),
        ("a chain of names", "[DEFAULT]\nvcpu_pin_set = $quota.cores\n[quota]\ncores = $quota.instances\n[compute]\n"
            "cpu_shared_set = 0-$vcpu_pin_set\n", ""),
        ("a name of itself", "[compute]\ncpu_shared_set = $cpu_shared_set\n", "recursion"),
        ("a name of itself in quotes", "[compute]\ncpu_shared_set = '0-$reserved_host_cpus'\n", ""),
        ("an escaped dollar before a name", "[compute]\ncpu_shared_set = \\$host\n", "'$host'"),
        ("a name of capitals", "[compute]\ncpu_shared_set = 0-$RESERVED_HOST_CPUS\n", "RESERVED_HOST_CPUS"),
        ("a name of a folder", "[compute]\ncpu_shared_set = 0-$state_path\n", "'0-"),
        ("a dollar where Nova does not look", "[vnc]\nserver_listen = $nosuch\n" + BOTH, ""),
    )),
)  # fmt: skip

REFUSED = (
    "'1", "1'", "\"1'", "0..3", "0:3", "0\u20133", "\u22121", "1e1", "0b1", "1_", "_1", "1__0", "½", "²", "3-0",
    "0-3-5", "0--3", "^", "0-3 ^1", "! 1", "all", "*", "node0",
    "0-3;^1", "0xff", "0-3/2", "-0", "^0", "1,^1", "^0-3,0-3", ", ,",
)  # fmt: skip
LISTS = (
    *shared("0-8191", "8191", ",".join(map(str, range(0, 4000, 2))), "0-3,0-3,^7", "1,^2-9", "0-9,^0-8", "0,0,0", "0-0",
        "00-03", "5-5,^6", " 1 , 2 ", "1,\t2", "^1,^2,0-3", "+0-+3", "0- 3", "0 -3", "' 1 , 2 '", '""', "''",
        "^+1,0-2"),
    *(variant for text in REFUSED for variant in shared(text, reason=repr(text))),
    *shared("''1''", reason='"\'1\'"'), *shared("1 2,3", reason="'1 2'"), *shared("ff,ff", reason="'ff'"),
    *shared("^^1,0-3", reason="'^^1'"),
)  # fmt: skip

UNUSUAL = (*FOLDERS, *LINKS, *LINES, *ENVIRONMENTS, *TEXTS, *REFERENCES, *LISTS)
