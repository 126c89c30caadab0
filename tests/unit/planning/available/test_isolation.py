"""Advice for the boot: it keeps the isolation that there is, and asks for none that no guest would use."""

from dataclasses import replace

import pytest
from data.field import dpdk, isolation
from support.hosts import KERNEL, cpus, guest, plain, snapshot

from pinner.model.errors import NoFit
from pinner.model.plan.request import Request
from pinner.model.snapshot import Snapshot
from pinner.planning.available.isolation import arguments, grub_line, lacking
from pinner.planning.planner import plan
from pinner.render import shell, text

ARGUMENTS = "isolcpus=managed_irq,domain,2-3 nohz_full=2-3 rcu_nocbs=2-3"


def booted(line: str, *, release: str = "6.12.0", **more: object) -> Snapshot:
    return snapshot(plain(16, kernel=replace(KERNEL, command_line=line, release=release), **more))


def advice(host: Snapshot) -> tuple[str, str]:
    """The CPUs wanted, and the arguments."""
    made = plan(host, "s", Request("isolated"))
    return (str(made.isolation.wanted), made.isolation.kernel_arguments) if made.isolation else ("", made.blocked)


def same(cpu_list: str, flags: str = "") -> str:
    return f"isolcpus={flags}{cpu_list} nohz_full={cpu_list} rcu_nocbs={cpu_list}"


def test_what_is_isolated_for_others_stays_so_with_its_flags() -> None:
    assert advice(isolation.NOVA) == (isolation.NOVA_WANTED, same(isolation.NOVA_LIST))
    assert advice(isolation.REALTIME)[1] == same(isolation.REALTIME_LIST, "managed_irq,domain,")


@pytest.mark.parametrize(
    ("host", "why"),
    [
        (isolation.NOVA_SHARED, "floating guests need Nova's cpu_shared_set (0-3,24-27) balanced"),
        (snapshot(plain(32)), "no guest needs one"),
        (snapshot(plain(32), [guest(1, 2, cpus("0-31"), pins=["8", "9"], dedicated=True)]), "no guest needs one"),
        (snapshot(plain(32), [guest(1, 30, cpus("0-31"))]), "no guest fits those that could be (8-31)"),
    ],
    ids=["cpu_shared_set", "no guest", "a guest of Nova alone", "a guest that never fits"],
)
def test_nothing_is_advised_where_no_guest_would_use_it(host: Snapshot, why: str) -> None:
    wanted, blocked = advice(host)
    assert (wanted, why in blocked, "isolcpus" in blocked) == ("", True, False)


def test_a_host_with_dpdk_whose_cpus_all_have_owners_gets_no_advice() -> None:
    with pytest.raises(NoFit, match="no CPU is left for vCPUs"):
        plan(dpdk.HOST, "s", Request("isolated"))


def test_isolation_that_no_guest_uses_gets_no_advice_either() -> None:
    assert plan(snapshot(plain(32, isolated="8-31")), "s", Request("isolated")).isolation is None


def test_a_live_form_without_guests_prints_no_empty_argument() -> None:
    assert (
        plan(snapshot(plain(32), [guest(1, 2, cpus("0-31"))]), "s", Request("isolated", isolation="live")).isolation
        is None
    )


def test_live_isolation_of_novas_shared_cpus_does_not_outlast_the_boot() -> None:
    host = snapshot(plain(32), [guest(1, 2, cpus("0-31"))], shared=cpus("8-31"))
    made = plan(host, "s", Request("isolated"))
    assert made.isolation is None


@pytest.mark.parametrize(
    ("line", "isolated", "nohz_full", "expected"),
    [
        ("", "", "", ARGUMENTS),
        ("isolcpus=5 nohz_full=5 rcu-nocbs=5", "5", "5", same("2-3,5")),
        ("isolcpus=managed_irq,domain,5", "5", "", same("2-3,5", "managed_irq,domain,")),
        ("isolcpus=domain,0-7:1/4", "0,4", "", same("0,2-4", "domain,")),
        ("isolcpus=12-99", "12-15", "", same("2-3,12-15")),
        ("isolcpus=managed_irq,8-9", "", "", same("2-3", "managed_irq,domain,")),
        ("nohz_full=2-9 rcu_nocbs=all", "", "2-9", "isolcpus=managed_irq,domain,2-3 nohz_full=2-9 rcu_nocbs=0-15"),
        ("isolcpus=nohz,domain,5 nohz_full=4-5", "5", "5", same("2-3,5", "nohz,domain,")),
    ],
    ids=["none", "no flags", "flags", "groups", "absent", "no domain", "more than isolcpus", "one list for nohz"],
)
def test_each_argument_keeps_its_cpus_and_flags(line: str, isolated: str, nohz_full: str, expected: str) -> None:
    assert arguments(booted(line, isolated=isolated, nohz_full=nohz_full), cpus("2-3")) == expected


def test_an_older_kernel_gets_the_same_cpus_in_isolcpus_and_nohz_full() -> None:
    """Before Linux 5.18 it ignores the later one of two different lists."""
    older = booted("nohz_full=2-9", nohz_full="2-9", release="5.14.0-427.el9.x86_64")
    assert arguments(older, cpus("2-3")) == ARGUMENTS


@pytest.mark.parametrize(
    ("current", "remaining"),
    [
        ("", ""),
        ("BOOT_IMAGE=/boot/vmlinuz-6.1 root=UUID=1-2 ro initrd=\\initrd quiet", "quiet "),
        ("BOOT_IMAGE= root= ro quiet", "quiet "),
        ("intel_iommu=on isolcpus= mitigations=off", "intel_iommu=on mitigations=off "),
        ("rw rootflags=subvol=@ console=ttyS0,115200n8", "rw rootflags=subvol=@ console=ttyS0,115200n8 "),
        ('dyndbg="file a.c +p" price=$5`x`', r"dyndbg=\"file a.c +p\" price=\$5\`x\` "),
    ],
)
def test_the_grub_line_contains_the_current_arguments(current: str, remaining: str) -> None:
    flags = "" if "isolcpus" in current else "managed_irq,domain,"
    assert grub_line(booted(current), cpus("2-3")) == f'GRUB_CMDLINE_LINUX="{remaining}{same("2-3", flags)}"'


def test_arguments_for_init_stay_last_in_the_grub_line() -> None:
    assert grub_line(booted("quiet -- single root=no"), cpus("2-3")) == (
        f'GRUB_CMDLINE_LINUX="quiet {ARGUMENTS} -- single root=no"'
    )


def test_a_line_to_paste_has_no_value_that_a_capture_left_out() -> None:
    made = plan(isolation.CAPTURED, "s", Request("isolated"))
    assert made.isolation is not None
    assert (made.isolation.grub_line, made.isolation.kernel_arguments) == ("", same("8-31", "managed_irq,domain,"))
    for shown in (shell.render(made), text.render(made)):
        assert made.isolation.kernel_arguments in shown
        assert "console=" not in shown


def test_a_warning_claims_nothing_that_the_boot_asks_for() -> None:
    """The kernel ignored nohz_full."""
    told = list(lacking(booted("isolcpus=4-5 nohz_full=4-5 rcu_nocbs=0-15:2/4", isolated="4-5").topology, cpus("4-5")))
    assert told == ["isolated CPUs 4-5 keep their timer tick: nohz_full=4-5 is not in force"]
