"""A plan's name: plans made of the same are the same plan."""

import hashlib


def plan_id(*made_of: bytes) -> str:
    """``plan-`` and 16 hexadecimal digits of the SHA-256 of all that the plan was made of."""
    digest = hashlib.sha256(b"\n".join(made_of)).hexdigest()
    return f"plan-{digest[:16]}"
