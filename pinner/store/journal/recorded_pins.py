"""The pins of guests that the journal's runs made. Each guest costs searches in the index of the entries' owners."""

import json
from collections.abc import Collection

from sqlalchemy import Engine, text

from pinner.model.cpuset import CpuSet
from pinner.model.run.journal import RecordedPins
from pinner.store.database.engine import reading

_PLACED = text(
    "SELECT guest.value FROM json_each(:guests) AS guest "
    "WHERE EXISTS (SELECT 1 FROM entries WHERE entries.owner = guest.value AND entries.state <> 'failed')"
)
"""Of a guest that a run touched, the first change is that of the metadata, and it did not fail. All changes of a guest
that could not be read have failed."""
_PERSISTED = text(
    "SELECT DISTINCT entries.owner, entries.kind, json_extract(entries.change, '$.target.part'), entries.mask "
    "FROM json_each(:guests) AS guest JOIN entries ON entries.owner = guest.value JOIN runs ON runs.id = entries.run "
    "WHERE runs.persist AND (entries.state IN ('intent', 'done', 'stuck') "
    "OR entries.state = 'gone' AND runs.state NOT IN ('undone', 'rolled_back', 'rolled_back_partly'))"
)
"""An entry whose guest is gone may have written the definition, until the run is rolled back."""


def recorded_pins(engine: Engine, guests: Collection[str]) -> RecordedPins:
    """The pins that the runs of an SQLite database made on these guests (by UUID)."""
    asked = {"guests": json.dumps(sorted(guests))}
    with reading(engine) as connection:
        placed = frozenset(connection.execute(_PLACED, asked).scalars())
        if not placed:
            return RecordedPins()
        found = connection.execute(_PERSISTED, asked)
        return RecordedPins(
            placed, frozenset((owner, kind, part, CpuSet.parse(mask)) for owner, kind, part, mask in found)
        )
