import time

from oslo_config import cfg
from oslo_policy.policy import Enforcer

from pinner import wiring
from pinner.api.access.context import AccessControl
from pinner.api.access.credentials import Credentials
from pinner.api.access.peer import parse_networks
from pinner.api.access.policies import Authorizer
from pinner.api.access.refusals import RefusalAudit
from pinner.model.run.token import check_name, check_role
from pinner.store.repositories import Store

CLIENT_ROLES = "[api] tls_client_roles"


def access_control(config: cfg.ConfigOpts, store: Store) -> AccessControl:
    """Raises Invalid for a wrong option. The caller closes ``refusals`` at the end."""
    roles = {
        check_name(name, CLIENT_ROLES): check_role(role, CLIENT_ROLES)
        for name, role in config.api.tls_client_roles.items()
    }
    trusted = parse_networks(config.api.trusted_proxies, "[api] trusted_proxies")
    return AccessControl(
        Credentials(store.tokens, roles, trusted, wiring.now, time.monotonic),
        Authorizer(Enforcer(config), time.monotonic),
        RefusalAudit(store.audit, wiring.now),
    )


def get_enforcer() -> Enforcer:
    """The commands of oslo.policy call it."""
    return Authorizer(Enforcer(wiring.configuration(None)), time.monotonic).enforcer
