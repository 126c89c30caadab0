"""The schemas of requests, all of them."""

import importlib
import json
import pkgutil
from collections.abc import Iterator

import pytest
from pydantic import ValidationError

from pinner.api import schemas
from pinner.api.schemas.bodies import NewIdentity
from pinner.api.schemas.inputs import Input

for module in pkgutil.iter_modules(schemas.__path__):
    importlib.import_module(f"{schemas.__name__}.{module.name}")


def _below(kind: type[Input]) -> Iterator[type[Input]]:
    for each in kind.__subclasses__():
        yield each
        yield from _below(each)


SCHEMAS = list(_below(Input))


def test_the_schemas_of_lists_are_among_them():
    assert {"AnchorInput", "NewScenario", "NewPlan", "NewEvent"} <= {schema.__name__ for schema in SCHEMAS}


@pytest.mark.parametrize("wrong", [{}, [], 1, None, "x" * 1000])
@pytest.mark.parametrize("schema", [kind for kind in SCHEMAS if not kind.__name__.endswith("Query")])
def test_many_wrong_items_give_the_errors_of_few(schema, wrong):
    """A body of 249 KiB took 800 MiB in the API's process."""
    for name, field in schema.model_fields.items():
        with pytest.raises(ValidationError) as error:
            schema.model_validate_json(json.dumps({field.alias or name: [wrong] * 1000}))
        assert error.value.error_count() < 100, name


def test_many_wrong_values_of_a_mapping_give_one_error():
    with pytest.raises(ValidationError) as error:
        NewIdentity.model_validate({"extra_specs": {str(at): at for at in range(1000)}})
    assert error.value.error_count() < 100
