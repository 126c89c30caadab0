from collections.abc import Iterator
from pathlib import Path

import pytest
from flask.testing import FlaskClient
from support.fakes.in_memory_service import InMemoryService
from support.server.access import make_control
from support.server.unix_http import on_unix_socket, served

from pinner.api.app import create_app
from pinner.store.idempotency import IdempotencyKeys
from pinner.store.repositories import open_store

MAX_BODY = 4096


@pytest.fixture
def pinner() -> InMemoryService:
    return InMemoryService()


@pytest.fixture
def idempotency_keys(tmp_path: Path) -> Iterator[IdempotencyKeys]:
    """The keys of a database of their own."""
    with open_store(f"sqlite:///{tmp_path}/keys.sqlite") as store:
        yield store.idempotency_keys


@pytest.fixture
def client(pinner: InMemoryService, idempotency_keys: IdempotencyKeys) -> FlaskClient:
    """The user nobody on the Unix socket."""
    app = create_app(pinner, control=make_control(), max_body_bytes=MAX_BODY, idempotency_keys=idempotency_keys)
    return on_unix_socket(app.test_client())


@pytest.fixture
def server(pinner: InMemoryService):
    """The application served over a real Unix socket; ``server.http`` calls it."""
    with served(create_app(pinner, control=make_control(), max_body_bytes=MAX_BODY)) as running:
        yield running
