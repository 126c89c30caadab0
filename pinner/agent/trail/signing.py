import base64
from dataclasses import replace
from pathlib import Path

import rfc8785
from cryptography.exceptions import InvalidSignature
from cryptography.hazmat.primitives import serialization
from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PrivateKey, Ed25519PublicKey

from pinner import whole_file
from pinner.model.errors import Invalid, StoreUnavailable
from pinner.model.run.agent_audit import SignedHead

TYPE = "pinner agent head 1"
"""Part of every signed text: the signature fits no other kind of text."""


class SigningKey:
    def __init__(self, path: Path) -> None:
        """Makes a missing file, which only its owner may read. Raises StoreUnavailable."""
        try:
            if not path.exists():
                _create(path)
            key = serialization.load_pem_private_key(path.read_bytes(), None)
        except (OSError, ValueError) as error:
            why = (error.strerror if isinstance(error, OSError) else None) or str(error)
            raise StoreUnavailable(str(path), f"the agent's signing key cannot be read: {why}") from None
        if not isinstance(key, Ed25519PrivateKey):
            raise StoreUnavailable(str(path), "this is no Ed25519 key")
        self._key = key
        raw = key.public_key().public_bytes(serialization.Encoding.Raw, serialization.PublicFormat.Raw)
        self.public = base64.b64encode(raw).decode()
        """32 bytes in base64."""

    def sign(self, head: SignedHead) -> SignedHead:
        head = replace(head, key=self.public)
        return replace(head, signature=base64.b64encode(self._key.sign(_signed_text(head))).decode())


def is_signed(head: SignedHead) -> bool:
    try:
        key = Ed25519PublicKey.from_public_bytes(base64.b64decode(head.key, validate=True))
        key.verify(base64.b64decode(head.signature, validate=True), _signed_text(head))
    except (ValueError, InvalidSignature):
        return False
    return True


def pem(key: str) -> str:
    """The public key (32 bytes in base64) as PEM (RFC 8410). Raises Invalid."""
    try:
        public = Ed25519PublicKey.from_public_bytes(base64.b64decode(key, validate=True))
    except ValueError:
        raise Invalid("key", key, "the 32 bytes of an Ed25519 public key in base64") from None
    info = serialization.PublicFormat.SubjectPublicKeyInfo
    return public.public_bytes(serialization.Encoding.PEM, info).decode()


def read_pem(text: bytes, field: str) -> str:
    """The public key, 32 bytes in base64. Raises Invalid for ``field``."""
    try:
        key = serialization.load_pem_public_key(text)
    except ValueError:
        key = None
    if not isinstance(key, Ed25519PublicKey):
        raise Invalid(field, "(its content)", "an Ed25519 public key in PEM, as `pinner audit key` prints it")
    return base64.b64encode(key.public_bytes(serialization.Encoding.Raw, serialization.PublicFormat.Raw)).decode()


def _signed_text(head: SignedHead) -> bytes:
    fields = {name: getattr(head, name) for name in SignedHead.__dataclass_fields__ if name != "signature"}
    return rfc8785.dumps({"type": TYPE, **fields})


def _create(path: Path) -> None:
    """If another process was first, its key counts."""
    key = Ed25519PrivateKey.generate()
    encoding, plain = serialization.Encoding.PEM, serialization.NoEncryption()
    text = key.private_bytes(encoding, serialization.PrivateFormat.PKCS8, plain)
    whole_file.create(path, text)
