"""The demo says with numbers where a machine is too busy for it."""

import os

import pytest
from demo.load import load, other_load, too_busy


def test_the_load_is_the_busy_part_of_all_time():
    assert load((100, 1000), (250, 1200), 2) == 1.5
    assert load((100, 1000), (100, 1000), 2) == 0.0


def test_waiting_for_a_disk_is_no_load_and_steal_is_one():
    readings = iter(["cpu  10 0 10 100 50 0 0 30 0 0\n", "cpu  20 0 10 150 80 0 0 40 0 0\n"])

    class Stat:
        def read_text(self) -> str:
            return next(readings)

    assert other_load(0, Stat()) == pytest.approx(load((50, 200), (70, 300), os.cpu_count() or 1))


@pytest.mark.parametrize(("used", "cpus"), [(0.5, 2), (1.9, 2), (8.0, 32)])
def test_a_busy_machine_is_named_with_its_numbers(used, cpus):
    assert f"other programs use {used} of its {cpus} CPUs" in too_busy(used, cpus)


@pytest.mark.parametrize(("used", "cpus"), [(0.0, 2), (0.49, 2), (7.9, 32)])
def test_an_idle_machine_is_not_called_busy(used, cpus):
    assert too_busy(used, cpus) == ""
