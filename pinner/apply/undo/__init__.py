"""Everything that a rollback needs besides the steps. undoing undoes the entries of a run, and first_masks those of
all runs. handed_down corrects later runs that found masks of the run."""
