"""Requests read strictly: what a schema does not allow is refused, with the field and its value named.

It takes the place of APIFlask's own adapter for pydantic, which coerces strings to numbers, lets a repeated query
parameter and NaN pass, ignores the media type, and answers without the value.
"""

from typing import Any, Literal

from apiflask.schema_adapters.pydantic import PydanticAdapter
from flask import Request
from pydantic import BaseModel, RootModel, ValidationError
from werkzeug.exceptions import UnsupportedMediaType

from pinner import codec
from pinner.model.errors import Invalid

COMPONENT = "#/components/schemas/{model}"
"""Where the OpenAPI document keeps a schema."""


class StrictAdapter(PydanticAdapter):
    """Reads JSON bodies and query strings, writes the model's values."""

    def validate_input(self, request: Request, location: str, **_options: Any) -> BaseModel:
        """The request's body or query as the schema's model. Raises Invalid."""
        try:
            if location == "query":
                return self.model_class.model_validate(_single(request))
            return self.model_class.model_validate_json(_json(request))
        except ValidationError as error:
            raise codec.invalid(error, "" if error.errors()[0]["loc"] else "body") from None

    def get_schema_name(self) -> str:
        """The component's name: of RootModel[Plan] that of Plan."""
        root: str = self._described().get("$ref", self.model_class.__name__)
        return root.rpartition("/")[2]

    def get_openapi_schema(self, **_options: Any) -> dict[str, Any]:
        """The schema as it stands in the document; its parts are components too, whoever uses them (openapi.py)."""
        schema = self._described()
        if "$ref" in schema:
            schema |= schema["$defs"].pop(self.get_schema_name())
            del schema["$ref"]
        return schema

    def _described(self) -> dict[str, Any]:
        mode: Literal["serialization", "validation"] = (
            "serialization" if issubclass(self.model_class, RootModel) else "validation"
        )
        return self.model_class.model_json_schema(ref_template=COMPONENT, mode=mode)


def _single(request: Request) -> dict[str, str]:
    for name, values in request.args.lists():
        if len(values) > 1:
            raise Invalid(name, values, "one value, not several")
    return request.args.to_dict()


def _json(request: Request) -> str:
    """The body; none at all means that every field has its default."""
    body = request.get_data(cache=False)
    if request.mimetype != "application/json" and (body or request.mimetype):
        raise UnsupportedMediaType(f"Content-Type: {request.mimetype!r} is not application/json")
    try:
        return body.decode() or "{}"
    except UnicodeDecodeError as error:
        raise Invalid("body", repr(body[error.start : error.end]), "JSON in UTF-8") from None
