"""Certificates for tests, made with openssl(1)."""

import subprocess
from dataclasses import dataclass
from pathlib import Path


@dataclass(frozen=True)
class Authority:
    """A certificate authority with its files in ``folder``."""

    folder: Path
    name: str

    @classmethod
    def create(cls, folder: Path, name: str) -> "Authority":
        """A new authority."""
        made = cls(folder, name)
        # Python 3.13 refuses an authority without this extension, which RFC 5280 demands.
        subject = ["-subj", f"/CN={name}", "-days", "2", "-addext", "keyUsage=critical,keyCertSign,cRLSign"]
        _openssl("req", "-x509", *_new_key(made.file("key")), *subject, "-out", str(made.certificate))
        return made

    @property
    def certificate(self) -> Path:
        """The authority's own certificate."""
        return self.file("pem")

    def file(self, ending: str) -> Path:
        """A file of the authority."""
        return self.folder / f"{self.name}.{ending}"

    def issue(self, common_name: str) -> tuple[Path, Path]:
        """The files of a new certificate for localhost, and of its key."""
        certificate, key, asked = (self.folder / f"{self.name}-{common_name}.{end}" for end in ("pem", "key", "csr"))
        _openssl("req", *_new_key(key), "-subj", f"/CN={common_name}", "-out", str(asked))
        extensions = self.file("ext")
        extensions.write_text("subjectAltName=DNS:localhost,IP:127.0.0.1\nauthorityKeyIdentifier=keyid\n")
        signer = ["-CA", str(self.certificate), "-CAkey", str(self.file("key")), "-CAcreateserial", "-days", "2"]
        files = ["-in", str(asked), "-out", str(certificate), "-extfile", str(extensions)]
        _openssl("x509", "-req", *signer, *files)
        return certificate, key


def _new_key(file: Path) -> list[str]:
    return ["-newkey", "ec", "-pkeyopt", "ec_paramgen_curve:prime256v1", "-nodes", "-keyout", str(file)]


def _openssl(*arguments: str) -> None:
    subprocess.run(["openssl", *arguments], check=True, capture_output=True)
