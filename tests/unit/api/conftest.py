import pytest
from flask.testing import FlaskClient
from support.in_memory_service import InMemoryService
from support.unix_http import on_unix_socket, served

from pinner.api.app import create_app

MAX_BODY = 4096


@pytest.fixture
def pinner() -> InMemoryService:
    return InMemoryService()


@pytest.fixture
def client(pinner: InMemoryService) -> FlaskClient:
    """The user nobody on the Unix socket."""
    return on_unix_socket(create_app(pinner, tokens={}, max_body_bytes=MAX_BODY).test_client())


@pytest.fixture
def server(pinner: InMemoryService):
    """The application served over a real Unix socket; ``server.http`` calls it."""
    with served(create_app(pinner, tokens={}, max_body_bytes=MAX_BODY)) as running:
        yield running
