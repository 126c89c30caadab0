"""Schemas of requests, which refuse unknown fields, and of answers that are not of pinner.model or service.protocol.
Fields that mean the same as those of a value of the model are described there (description/fields.py)."""

from apiflask.schema_adapters import registry

from pinner.api.validation import StrictAdapter

# This must run before a view uses a schema: APIFlask then validates and describes every model with StrictAdapter.
registry.register("pydantic", StrictAdapter)
