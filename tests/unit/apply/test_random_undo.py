"""Random applies and rollbacks, in any order, leave nothing: every mask, definition and name is as at the start, or as
another program has made it."""

from random import Random

import pytest
from support.in_memory_host import InMemoryHost, daemon, emulator, vcpu
from support.values import NOON, make_run

from pinner.apply import executor
from pinner.model.errors import RunConflict
from pinner.store.journal import Journal

SEEDS = 30
STEPS = 8
MASKS = ("0", "1", "0-1", "2-3", "4")
GUEST = "uuid-g1"
DEFINITION = "<cputune/>[vcpu 1: 2-3]"


class Story:
    """A host on which random steps happen, and what other programs did there."""

    def __init__(self, folder, seed):
        self.random, self.journal, self.runs = Random(seed), Journal(folder), []
        self.host = InMemoryHost()
        self.host.has_metadata, self.host.definitions[GUEST] = True, DEFINITION
        self.targets = [self.host.add(each, "0-7") for each in (emulator(), vcpu(0), vcpu(1), daemon(300))]
        self.initial = {tid: {mask} for tid, mask in self.host.kernel().items()}
        """The masks that each thread may have at the end."""
        self.told = []

    def apply(self, persist):
        changed = self.random.sample(self.targets, self.random.randint(1, len(self.targets)))
        changes = [self.host.change(target, self.random.choice(MASKS)) for target in changed]
        self.told.append((f"r{len(self.runs)}", persist, [(str(each.target), str(each.after)) for each in changes]))
        run = make_run(f"r{len(self.runs)}", persist=persist)
        executor.apply(self.host.plan(*changes), run, self.host, self.journal, lambda: NOON, lambda entry, total: None)
        self.runs.append(run.id)

    def apply_live(self):
        self.apply(persist=False)

    def apply_persistently(self):
        self.apply(persist=True)

    def roll_back_a_run(self):
        if self.runs:
            self.roll_back(self.random.choice(self.runs))

    def roll_back(self, undoes):
        self.told.append(f"rollback {undoes or 'of all'}")
        run = make_run(f"back{len(self.told)}", kind="rollback", plan="", undoes=undoes)
        try:
            executor.rollback(run, self.host, self.journal, lambda: NOON, lambda entry, total: None)
        except RunConflict:
            self.told.append("refused")

    def another_program_moves_a_thread(self):
        tid, mask = self.random.choice(list(self.initial)), self.random.choice(MASKS)
        self.told.append(f"{tid} -> {mask}")
        self.host.move(tid, mask)
        self.initial[tid].add(mask)

    def happen(self):
        steps = (self.apply_live, self.apply_persistently, self.roll_back_a_run, self.another_program_moves_a_thread)
        for step in self.random.choices(steps, (4, 3, 3, 1), k=STEPS):
            step()
        if self.random.random() < 0.5:
            for run in reversed(self.runs):
                self.roll_back(run)
        self.roll_back("")


@pytest.mark.fault(59)
@pytest.mark.parametrize("seed", range(SEEDS))
def test_nothing_is_left(tmp_path, seed):
    story = Story(tmp_path, seed)
    story.happen()
    host = story.host
    left = {tid: mask for tid, mask in host.kernel().items() if mask not in story.initial[tid]}
    assert left == {}, story.told
    assert set(host.definitions[GUEST].partition("[")[2].split("[")) == {"vcpu 1: 2-3]"}, story.told
    assert (host.names.get(GUEST, ()), host.defined_names.get(GUEST, ())) == ((), ()), story.told
    story.journal.close()
