"""TLS of the embedded server."""

import ssl
from dataclasses import dataclass
from pathlib import Path

from pinner.model.errors import Invalid


@dataclass(frozen=True, slots=True)
class TlsFiles:
    """An empty path is not configured."""

    certificate: str = ""
    """The server's certificate and those between it and the root, in PEM."""
    key: str = ""
    """The private key without a passphrase, in PEM; empty: it is in the certificate's file."""
    client_ca: str = ""
    """The authorities of accepted client certificates, in PEM."""
    client_required: bool = False


def server_context(files: TlsFiles) -> ssl.SSLContext | None:
    """None without a certificate. TLS 1.2 or newer (RFC 9325). Reads the key, so it needs root. Raises Invalid."""
    if not files.certificate:
        for option in ("key", "client_ca", "client_required"):
            if value := getattr(files, option):
                raise Invalid(f"[api] tls_{option}", value, "used together with tls_certificate")
        return None
    if files.client_required and not files.client_ca:
        raise Invalid("[api] tls_client_required", True, "used together with tls_client_ca")
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    context.minimum_version = ssl.TLSVersion.TLSv1_2
    _load_certificate(context, files)
    if files.client_ca:
        _load_authorities(context, files)
    return context


def _load_certificate(context: ssl.SSLContext, files: TlsFiles) -> None:
    for option, file in (("certificate", files.certificate), ("key", files.key)):
        _require_readable(option, file)
    try:
        # The password is empty, so that OpenSSL does not ask for one on the terminal.
        context.load_cert_chain(files.certificate, files.key or None, password="")
    except (OSError, ValueError) as error:
        where = " and ".join(file for file in (files.certificate, files.key) if file)
        expected = f"a certificate chain and its private key without a passphrase, in PEM ({_reason(error)})"
        raise Invalid("[api] tls_certificate, tls_key", where, expected) from None


def _load_authorities(context: ssl.SSLContext, files: TlsFiles) -> None:
    _require_readable("client_ca", files.client_ca)
    try:
        context.load_verify_locations(files.client_ca)
    except (OSError, ValueError) as error:
        expected = f"the certificates of authorities, in PEM ({_reason(error)})"
        raise Invalid("[api] tls_client_ca", files.client_ca, expected) from None
    context.verify_mode = ssl.CERT_REQUIRED if files.client_required else ssl.CERT_OPTIONAL


def _require_readable(option: str, file: str) -> None:
    if not file:
        return
    try:
        with Path(file).open("rb"):
            pass
    except OSError as error:
        raise Invalid(f"[api] tls_{option}", file, f"a file that can be read ({error.strerror})") from None


def _reason(error: Exception) -> str:
    return getattr(error, "reason", None) or str(error)
