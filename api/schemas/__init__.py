"""The schemas of requests, and of the answers that are not values of pinner.model.

Requests have models of their own, which refuse unknown fields. Most answers are values of pinner.model or of
pinner.service.protocol: their views say RootModel[Plan], for example.
"""

from apiflask.schema_adapters import registry

from pinner.api.validation import StrictAdapter

# This must run before a view uses a schema: APIFlask then validates and describes every model with StrictAdapter.
registry.register("pydantic", StrictAdapter)
