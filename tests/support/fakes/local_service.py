"""The service over one agent, and the wait for its runs."""

import uuid

from pinner.model.page import PageRequest
from pinner.model.run.audit import Caller
from pinner.service.local import ServiceParts

ANN = Caller("ann", "10.0.0.1", "req-1")


def compose_service(agent, store, clock):
    return ServiceParts({"h1": agent}, store, clock, lambda: uuid.uuid4().hex[:12], 0.0)


def finish(service, run):
    return list(service.follow(run.id))


def trail(service, *actions):
    records = reversed(service.audit(None, None, None, PageRequest(100)).items)
    return [record for record in records if not actions or record.action in actions]
