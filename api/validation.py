"""Strict validation of requests: an invalid value is refused, with its field and the value. APIFlask's own adapter
converts strings to numbers, accepts NaN and repeated parameters, ignores the media type, and names no value."""

import json
from dataclasses import dataclass
from typing import Any, Literal

from apiflask.schema_adapters.pydantic import PydanticAdapter
from flask import Request, Response
from flask.json.provider import DefaultJSONProvider
from pydantic import BaseModel, RootModel, ValidationError
from werkzeug.exceptions import UnsupportedMediaType
from werkzeug.sansio.response import Response as SansIOResponse

from pinner import codec
from pinner.model.errors import Invalid

_NO_NUL = "text without the character NUL"
COMPONENT = "#/components/schemas/{model}"


@dataclass(frozen=True, slots=True)
class Written:
    json: bytes


class WrittenJson(DefaultJSONProvider):
    """Also takes answers that are JSON already."""

    sort_keys = False

    def response(self, *args: Any, **kwargs: Any) -> SansIOResponse:
        if args and isinstance(args[0], Written):
            return Response(args[0].json, mimetype=self.mimetype)
        return super().response(*args, **kwargs)


class StrictAdapter(PydanticAdapter):
    def validate_input(self, request: Request, location: str, **_options: Any) -> BaseModel:
        """Raises Invalid."""
        try:
            if location == "query":
                return self.model_class.model_validate(_single(request))
            text = _json(request)
            value = self.model_class.model_validate_json(text)
            json.loads(text, object_pairs_hook=_require_clear)
            return value
        except ValidationError as error:
            raise codec.invalid(error, "" if error.errors()[0]["loc"] else "body") from None

    def serialize_output(self, data: Any, many: bool = False) -> "Written":  # noqa: ARG002 - no view returns a list
        """pydantic writes the JSON, without dicts between."""
        kind: Any = self.model_class
        if issubclass(kind, RootModel):
            kind = kind.model_fields["root"].annotation
        return Written(codec.adapter(kind).dump_json(data, by_alias=True) + b"\n")

    def get_schema_name(self) -> str:
        """RootModel[Plan] has the name of Plan."""
        root: str = self._json_schema().get("$ref", self.model_class.__name__)
        return root.rpartition("/")[2]

    def get_openapi_schema(self, **_options: Any) -> dict[str, Any]:
        schema = self._json_schema()
        if "$ref" in schema:
            schema |= schema["$defs"].pop(self.get_schema_name())
            del schema["$ref"]
        return schema

    def _json_schema(self) -> dict[str, Any]:
        mode: Literal["serialization", "validation"] = (
            "serialization" if issubclass(self.model_class, RootModel) else "validation"
        )
        return self.model_class.model_json_schema(ref_template=COMPONENT, mode=mode)


def _single(request: Request) -> dict[str, str]:
    for name, values in request.args.lists():
        if len(values) > 1:
            raise Invalid(name, values, "one value; the parameter is given several times")
        if "\0" in values[0]:
            raise Invalid(name, values[0][:80], _NO_NUL)
    return request.args.to_dict()


def _require_clear(pairs: list[tuple[str, Any]]) -> None:
    """Raises Invalid for a repeated field, which programs read differently, and for NUL, which no database takes."""
    names: set[str] = set()
    for name, value in pairs:
        if name in names:
            raise Invalid(name, value, "one value; the field is given several times")
        names.add(name)
        if any(isinstance(text, str) and "\0" in text for text in (name, *(value if type(value) is list else [value]))):
            raise Invalid(name, value, _NO_NUL)


def _json(request: Request) -> str:
    """An empty body may have been lost on the way; {} asks for the defaults."""
    body = request.get_data(cache=False)
    coding = request.headers.get("Content-Encoding", "identity")
    if any(name.strip().lower() != "identity" for name in coding.split(",")):
        what = f"Content-Encoding: {coding[:80]!r} is not supported; send the body as it is (identity)"
        raise UnsupportedMediaType(what)
    if request.mimetype != "application/json" and (body or request.mimetype):
        raise UnsupportedMediaType(f"Content-Type: {request.mimetype!r} is not supported; send application/json")
    if not body:
        raise Invalid("body", "", "a JSON object; {} asks for the default of every field")
    try:
        return body.decode()
    except UnicodeDecodeError as error:
        raise Invalid("body", repr(body[error.start : error.end]), "JSON in UTF-8") from None
