import pytest
from flask.testing import FlaskClient
from support.in_memory_service import InMemoryService

from pinner.api.app import create_app
from pinner.api.server import serve

MAX_BODY = 4096


@pytest.fixture
def pinner() -> InMemoryService:
    return InMemoryService()


@pytest.fixture
def client(pinner: InMemoryService) -> FlaskClient:
    """A client on this machine; the server has no tokens."""
    return create_app(pinner, tokens=None, max_body_bytes=MAX_BODY).test_client()


@pytest.fixture
def server(pinner: InMemoryService):
    """The application served over real HTTP on a loopback port."""
    running = serve(create_app(pinner, tokens=None, max_body_bytes=MAX_BODY), "127.0.0.1", 0)
    yield running
    running.stop()
