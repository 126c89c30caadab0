"""The REST application."""

from collections.abc import Mapping

from apiflask import APIFlask

from pinner import __version__
from pinner.api import access, errors, openapi, root
from pinner.api.context import Interface
from pinner.api.streams import Streams
from pinner.api.v1 import NOUNS
from pinner.service.protocol import Service


def create_app(pinner: Service, *, tokens: Mapping[str, str] | None, max_body_bytes: int) -> APIFlask:
    """The REST API over ``pinner`` as a WSGI application.

    ``tokens`` maps each accepted bearer token to the name that the audit trail gets; None lets anybody in who comes by
    a loopback name. A body above ``max_body_bytes`` is refused.
    """
    # No static files: Flask takes None for that, APIFlask only does not say so.
    app = APIFlask("pinner", title="pinner", version=__version__, docs_path=None, static_folder=None)  # type: ignore[arg-type]
    app.json.sort_keys = False  # type: ignore[attr-defined] # of Flask's own provider: fields keep the model's order
    app.config["MAX_CONTENT_LENGTH"] = max_body_bytes
    app.extensions["pinner"] = Interface(pinner, tokens, Streams())
    app.before_request(access.check)
    app.after_request(access.mark)
    errors.register(app)
    openapi.complete(app, tokens is not None)
    app.register_blueprint(root.bp)
    for noun in NOUNS:
        app.register_blueprint(noun, url_prefix="/v1")
    return app
