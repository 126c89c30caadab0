"""The schemas of requests, which refuse unknown fields, and of the answers that are no values of pinner.model or of
pinner.service.protocol."""

from apiflask.schema_adapters import registry

from pinner.api.validation import StrictAdapter

# This must run before a view uses a schema: APIFlask then validates and describes every model with StrictAdapter.
registry.register("pydantic", StrictAdapter)
