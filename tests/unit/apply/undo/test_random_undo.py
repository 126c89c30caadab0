"""Random applies and rollbacks, in any order, leave nothing: every mask, definition and name is as at the start, or as
another program has made it. Guests and the host restart in between, guests are saved, and pinner is killed."""

import re
from contextlib import suppress
from random import Random

import pytest
from support.fakes.in_memory_host import InMemoryHost, daemon, emulator, vcpu
from support.values import NOON, cpus, make_run

from pinner.apply import executor, recover
from pinner.apply.steps.metadata import keeps_pins
from pinner.model.change import PartPin, Target, ThreadMask
from pinner.model.errors import NotFound, RunConflict
from pinner.store.journal.journal import StoredJournal

SEEDS = (*range(30), 94, 137, 197, 10201, 100191, 1600164)
"""In the last six stories, an earlier version left something."""
STEPS = 8
MASKS = ("0", "1", "0-1", "2-3", "4")
GUEST = "uuid-g1"
PARTS = (emulator(), vcpu(0), vcpu(1))
PLUGGED = vcpu(2)
DEFINITION = "<cputune/>[vcpu 1: 5]"
DAEMON = 400


class Killed(BaseException):
    """The process was killed."""


class Host(InMemoryHost):
    """A host whose guest has pins in its live XML, and that kills pinner at a write."""

    def __init__(self):
        super().__init__()
        self.has_metadata, self.definitions[GUEST] = True, DEFINITION
        self.writes_left = None
        """The number of writes before pinner is killed; None: it is not killed."""
        self.before_write = lambda write: self.count()
        for target in (*PARTS, daemon(DAEMON)):
            self.add(target, _mask(DEFINITION, target))
        self.start(_pins(DEFINITION))

    def count(self):
        if self.writes_left == 0:
            raise Killed
        if self.writes_left is not None:
            self.writes_left -= 1

    def start(self, pins):
        """The guest starts with these pins, in new threads."""
        self.live_pins[GUEST] = pins
        masks = {(pin.kind, pin.part): pin.cpus for pin in pins}
        for number, target in enumerate(PARTS, start=1):
            mask = masks.get((target.kind, target.part), cpus("0-7"))
            self.threads[target] = [ThreadMask(100 * number, self.clock, mask)]

    def pin(self, target, cpus, *, persist):
        super().pin(target, cpus, persist=persist)
        self.pin_live(target, cpus)

    def pin_live(self, target, cpus):
        others = [pin for pin in self.live_pins[GUEST] if (pin.kind, pin.part) != (target.kind, target.part)]
        self.live_pins[GUEST] = (*others, PartPin(target.kind, target.part, cpus))


class Story:
    """Random steps on a host, and what other programs did there."""

    def __init__(self, folder, seed, operators=0, births=0):
        """``operators``: how often, compared with other steps, an operator changes the definition. ``births``: how
        often the emulator's main thread starts a worker or a vCPU."""
        self.operators, self.births, self.defined = operators, births, DEFINITION
        self.random, self.folder, self.runs, self.told = Random(seed), folder, [], []
        self.host, self.daemon = Host(), daemon(DAEMON)
        self.allowed = {tid: {mask} for tid, mask in self.host.kernel().items()}
        """The masks that each thread may have at the end. A mask that another program set before pinner's first run is
        also the usual one for the threads after a restart."""
        self.open_journal()

    def open_journal(self):
        self.journal = StoredJournal(self.folder)
        for name in ("add", "save", "end"):
            setattr(self.journal._runs, name, self.counted(getattr(self.journal._runs, name)))

    def counted(self, write):
        def counting(*args, **named):
            self.host.count()
            return write(*args, **named)

        return counting

    def may_be_killed(self, work):
        """Do the work. Where it is killed, the host or the guest may restart before a recovery."""
        self.host.writes_left = self.random.choice((None, None, None, self.random.randrange(15)))
        try:
            work()
        except Killed:
            self.host.writes_left = None
            self.told.append("killed")
            self.journal.close()
            self.open_journal()
            for happens in self.random.choice(self.after_a_kill()):
                happens()
            policy = self.random.choice(("back", "forward"))
            self.told.append(f"recovery {policy}")
            recover.recover(self.host, self.journal, policy, lambda: NOON, self.host.boot)
        finally:
            self.host.writes_left = None

    def after_a_kill(self):
        """The choices of what happens before the recovery."""
        save, restart = self.the_guest_is_saved_or_started, self.the_host_restarts
        return (self.the_guest_restarts,), (restart,), (), (), (save,), (save, restart), (save, restart, save)

    def apply(self, *, persist):
        targets = [self.daemon, *(part for part in (*PARTS, PLUGGED) if part in self.host.threads)]
        changed = self.random.sample(targets, self.random.randint(1, len(targets)))
        masks = {target: self.random.choice(MASKS) for target in changed}
        self.may_be_killed(lambda: self.place(f"r{len(self.runs)}", masks, persist=persist))

    def place(self, name, masks, *, persist):
        plan = self.host.plan(*(self.host.change(target, mask) for target, mask in masks.items()))
        run = make_run(name, persist=persist, boot=self.host.boot)
        self.told.append((run.id, persist, [(str(each.target), str(each.after)) for each in plan.changes]))
        self.runs.append(run.id)
        executor.apply(plan, run, self.host, self.journal, lambda: NOON, lambda *_: None)

    def apply_live(self):
        self.apply(persist=False)

    def apply_persistently(self):
        self.apply(persist=True)

    def roll_back_a_run(self):
        if self.runs:
            self.may_be_killed(lambda: self.roll_back(self.random.choice(self.runs)))

    def roll_back(self, undoes):
        self.told.append(f"rollback {undoes or 'of all'}")
        run = make_run(f"back{len(self.told)}", kind="rollback", plan="", undoes=undoes, boot=self.host.boot)
        with suppress(RunConflict, NotFound):  # a later run comes first; it is undone; or it was killed at its begin
            executor.rollback(run, self.host, self.journal, lambda: NOON, lambda *_: None)

    def another_program_moves_a_thread(self):
        """A part of a guest through libvirt, which changes its live pin, too."""
        target, mask = self.random.choice(list(self.host.threads)), self.random.choice(MASKS)
        tid = self.host.threads[target][0].tid
        self.told.append(f"{target} -> {mask}")
        self.host.move(tid, mask)
        if target in PARTS:
            self.host.pin_live(target, cpus(mask))
        self.allowed[tid].add(mask)

    def a_worker_starts(self):
        self.a_thread_starts(emulator())

    def a_vcpu_is_plugged(self):
        if PLUGGED not in self.host.threads:
            self.a_thread_starts(PLUGGED)

    def a_thread_starts(self, target):
        if GUEST in self.host.saved:
            return
        tid, main = 1000 + len(self.told), self.host.threads[emulator()][0]
        self.told.append(f"{target} thread {tid} starts on {main.cpus}")
        self.host.threads.setdefault(target, []).append(ThreadMask(tid, self.host.clock, main.cpus))
        self.allowed[tid] = self.allowed[main.tid]

    def an_operator_pins_a_part_in_the_definition(self):
        """To CPUs that no run gives; or the operator removes its pin."""
        target, mask = self.random.choice(PARTS), self.random.choice(("6", "7", ""))
        self.told.append(f"operator: {target} -> {mask or 'none'}")
        self.host.definitions[GUEST] = _with_pin(self.host.definitions[GUEST], target, mask)
        self.defined = _with_pin(self.defined, target, mask)
        self.allowed[100 * (PARTS.index(target) + 1)].add(mask or "0-7")

    def the_guest_restarts(self):
        if GUEST not in self.host.saved:
            self.start("from its definition", _pins(self.host.definitions[GUEST]), self.host.defined_names.get(GUEST))

    def the_guest_is_saved_or_started(self):
        if GUEST in self.host.saved:
            self.start("from its image", self.host.saved_pins.pop(GUEST), self.host.saved.pop(GUEST))
        else:
            self.told.append("saved")
            self.host.save(GUEST, *self.host.live_pins[GUEST])

    def start(self, how, pins, names):
        self.told.append(f"started {how}: {', '.join(map(str, pins))}")
        self.host.clock += 1
        self.host.threads.pop(PLUGGED, None)
        self.host.start(pins)
        self.host.names[GUEST] = names or ()

    def the_host_restarts(self):
        """The clock begins anew, and ids and start times may be those of other threads before."""
        self.told.append("restart of the host")
        self.host.boot, self.host.clock = self.host.boot + "+", 8
        self.the_guest_restarts()
        del self.host.threads[self.daemon]
        self.daemon = Target("process", str(DAEMON), self.random.choice((7, 8)), "busyd")
        self.host.threads[self.daemon] = [ThreadMask(DAEMON, self.daemon.part, cpus("0-7"))]
        self.allowed[DAEMON] = {"0-7"}
        self.journal.end_earlier_boots(self.host.boot, NOON, lambda guest: keeps_pins(guest, self.host))

    def happen(self):
        steps = {
            self.apply_live: 4,
            self.apply_persistently: 3,
            self.roll_back_a_run: 3,
            self.another_program_moves_a_thread: 1,
            self.the_guest_restarts: 1,
            self.the_guest_is_saved_or_started: 1,
            self.the_host_restarts: 1,
            self.an_operator_pins_a_part_in_the_definition: self.operators,
            self.a_worker_starts: self.births,
            self.a_vcpu_is_plugged: self.births,
        }
        for step in self.random.choices(list(steps), list(steps.values()), k=STEPS):
            self.host.clock += 10
            step()
        if self.random.random() < 0.7:
            for run in reversed(self.runs):
                self.roll_back(run)
        self.roll_back("")
        if GUEST in self.host.saved:
            self.the_guest_is_saved_or_started()


@pytest.mark.fault(32, 55, 59)
@pytest.mark.parametrize("seed", SEEDS)
def test_nothing_is_left(tmp_path, seed):
    require_nothing_is_left(Story(tmp_path, seed))


@pytest.mark.fault(52, 72)
@pytest.mark.parametrize("seed", (*range(8), 98, 129, 221, 603113, 1400105, 1500988))
def test_the_definition_has_the_last_pins_of_an_operator(tmp_path, seed):
    require_nothing_is_left(Story(tmp_path, seed, operators=4))


@pytest.mark.fault(50)
@pytest.mark.parametrize("seed", range(12))
def test_no_worker_or_vcpu_keeps_a_mask_that_it_inherited(tmp_path, seed):
    require_nothing_is_left(Story(tmp_path, seed, births=2))


def test_a_mask_that_a_run_between_gave_is_not_that_of_an_earlier_run(tmp_path):
    """The guest starts on the mask that r1 wrote into its definition. r0 had given another part the same mask."""
    story = Story(tmp_path, 0)
    story.place("r0", {emulator(): "1"}, persist=False)
    story.place("r1", {vcpu(1): "1"}, persist=True)
    story.the_host_restarts()
    story.host.clock += 10
    story.place("r2", {vcpu(1): "2-3"}, persist=False)
    story.roll_back("r0")
    story.roll_back("r2")
    assert story.host.kernel()[300] == "1"
    story.roll_back("r1")
    assert story.host.kernel()[300] == "5"
    story.journal.close()


@pytest.mark.fault(50)
@pytest.mark.parametrize("restart", ["the_guest_restarts", "the_host_restarts"])
def test_a_vcpu_inherits_the_mask_that_a_guest_has_from_its_definition(tmp_path, restart):
    """It starts before the first run since the guest's restart."""
    story = Story(tmp_path, 0)
    story.place("r0", {emulator(): "1"}, persist=True)
    getattr(story, restart)()
    story.host.clock += 10
    story.a_vcpu_is_plugged()
    story.host.clock += 10
    story.place("r1", {emulator(): "4"}, persist=False)
    story.roll_back("")
    assert set(story.host.kernel().values()) == {"0-7", "5"}, "the definition pins vCPU 1 to CPU 5"
    story.journal.close()


def require_nothing_is_left(story):
    story.happen()
    host = story.host
    left = {tid: mask for tid, mask in host.kernel().items() if mask not in story.allowed[tid]}
    assert left == {}, story.told
    assert set(_pins(host.definitions[GUEST])) == set(_pins(story.defined)), story.told
    assert (host.names.get(GUEST, ()), host.defined_names.get(GUEST, ())) == ((), ()), story.told
    story.journal.close()


def _pins(definition):
    found = re.findall(r"\[(vcpu|emulator) ?(\d*):? ([^]:]+)\]", definition)
    return tuple(PartPin(kind, int(part) if part else None, cpus(mask)) for kind, part, mask in found)


def _with_pin(definition, target, mask):
    """The definition with this pin of the target; without one for an empty mask."""
    name = target.kind if target.part is None else f"{target.kind} {target.part}:"
    others = re.sub(rf"\[{name} [^]:]+\]", "", definition)
    return others + (f"[{name} {mask}]" if mask else "")


def _mask(definition, target):
    """The CPUs of the target's pin in a definition; all CPUs where it has none."""
    masks = {(pin.kind, pin.part): str(pin.cpus) for pin in _pins(definition)}
    return masks.get((target.kind, target.part), "0-7")
