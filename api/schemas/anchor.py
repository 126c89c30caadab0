"""The schema of an anchor of the audit trail."""

from typing import Annotated

from pydantic import Field

from pinner.api.schemas.base import Input
from pinner.api.schemas.field_types import Whole
from pinner.model.run.agent_audit import Anchor, SignedHead

MAX_HEADS = 16
"""The most heads of an anchor; they fit into the largest request body."""
_Number = Annotated[int, Field(ge=0, lt=2**53), Whole]
"""A signature expresses no larger one (RFC 8785)."""
_Hash = Annotated[str, Field(pattern=r"^([0-9a-f]{64})?$")]
_HostName = Annotated[str, Field(max_length=255)]
_Base64 = Annotated[str, Field(pattern=r"^[A-Za-z0-9+/=]{0,88}$")]


class SignedHeadInput(Input):
    """The head of an agent's audit trail with its signature, as `GET /v1/audit/anchor` returned it."""

    host: _HostName
    """The agent's host."""
    seq: _Number
    """The number of the last record of the agent's trail."""
    hash: _Hash
    """The hash of that record."""
    centre_seq: _Number
    """The number of the centre's record that the agent saw last; 0: none."""
    centre_hash: _Hash
    """The hash of that record."""
    at: Annotated[str, Field(max_length=40, description="The agent's clock, as it was signed.")]
    key: _Base64
    """The agent's public key."""
    signature: _Base64
    """The signature of the other fields."""


class AnchorInput(Input):
    """An anchor, as `GET /v1/audit/anchor` returned it."""

    version: Annotated[int, Field(ge=1, le=1, description="The version of this format."), Whole]
    heads: Annotated[tuple[SignedHeadInput, ...], Field(min_length=1, max_length=MAX_HEADS)]
    """The signed head of each host."""

    def value(self) -> Anchor:
        """The anchor as a value."""
        return Anchor(self.version, tuple(SignedHead(**head.model_dump()) for head in self.heads))
