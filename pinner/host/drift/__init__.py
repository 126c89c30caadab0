"""Why a placement has drifted: the evidence on the host, and its likely cause."""
