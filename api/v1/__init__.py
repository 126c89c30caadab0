"""Version 1 of the REST API: one module per noun."""

from apiflask import APIBlueprint

from pinner.api.v1 import audit, hosts, plans, runs, strategies

NOUNS: tuple[APIBlueprint, ...] = (strategies.bp, hosts.bp, plans.bp, runs.bp, audit.bp)
