"""Every form of the service takes the arguments that Service names, in this order and with these defaults."""

import inspect

import pytest
from support.fakes.in_memory_service import InMemoryService
from support.server.real_service import real_service

from pinner.api.access.context import HostService
from pinner.service.protocol import Service
from pinner.service.remote.remote import RemoteService

USE_CASES = [name for name, method in vars(Service).items() if inspect.isfunction(method) and not name.startswith("_")]


def arguments(form):
    """Of each use case: names, kinds and defaults. mypy checks the types."""
    signatures = {name: inspect.signature(getattr(form, name)).parameters for name in USE_CASES}
    return {
        name: [(each.name, each.kind, each.default) for each in parameters.values() if each.name != "self"]
        for name, parameters in signatures.items()
    }


@pytest.mark.parametrize("form", [RemoteService, HostService, InMemoryService])
def test_another_form_of_the_service_has_its_arguments(form):
    assert arguments(form) == arguments(Service)


def test_the_service_of_this_process_has_the_arguments_of_the_protocol(tmp_path):
    with real_service(tmp_path) as (service, _):
        assert arguments(service) == arguments(Service)
