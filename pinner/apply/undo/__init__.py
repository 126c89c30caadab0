"""Undo: what a rollback gives back, to which threads, and what it leaves alone.

    run r1 places a process                      r2 places a child           the rollback of r1

    found  0-7  -> the prior mask, in            found  0-1, which r1 gave   its threads get 0-7 back;
                   r1's entry in the journal            to the child's       then r2's entry says that
    gives  0-1                                          source               r2 found 0-7, not 0-1
    a child starts on 0-1: an inheritor,         gives  2-3
    whose source is the process

Five rules, each with the files that keep it:

1. The journal has a thread's prior mask before the thread is moved, and an undo gives each thread its own one back.
   Runs are undone in any order, unless a later run has changed a target again; the entries of a run in reverse.
   (``undoing``, ``steps/affinity``)
2. The host is read first. A mask, state or pin that no run gave is somebody else's: it stays, and the rollback names
   it. (``steps/affinity``, ``steps/state``; ``later_runs`` for the pin of an operator between two runs)
3. An inheritor has a mask of pinner's from its start, and so no prior mask of its own. It gets the prior mask of its
   source: the target that it belongs to, another part of its guest, or the process that it descends from.
   (``steps/inheritors`` for targets without an entry, ``all_runs`` and ``later_runs`` for entries)
4. Of a run that is undone, nothing is left in the entries of later runs, so no later rollback brings it back.
   (``later_runs``; ``all_runs``, which takes all changes of a target as one, for a rollback of all runs)
5. A restart of the host ends every mask and state, but not the pins and names in definitions and saved images. No
   thread passes for one of an earlier boot. (``steps/affinity``, ``steps/metadata``, ``later_runs``, ``all_runs``)

``undoing`` is the front door for the undo of one run, ``all_runs`` for that of all runs; ``steps/affinity`` chooses the
mask that a thread gets back. ``purge`` of ``all_runs`` deletes the runs that no undo needs."""
