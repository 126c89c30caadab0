"""Version 1 of the REST API, one module per noun."""

from apiflask import APIBlueprint

from pinner.api.v1 import audit, events, hosts, plans, policies, probes, runs, strategies

NOUNS: tuple[APIBlueprint, ...] = (
    strategies.bp,
    hosts.bp,
    policies.bp,
    events.bp,
    plans.bp,
    runs.bp,
    probes.bp,
    audit.bp,
)
