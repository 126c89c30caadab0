"""Which role may do what: one oslo.policy rule an operation. The file ``[oslo_policy] policy_file`` overrides them;
etc/pinner/policy.yaml.sample has their defaults."""

import logging
import threading
from collections.abc import Callable, Mapping

from oslo_policy.policy import DocumentedRuleDefault, Enforcer, RuleDefault
from werkzeug.exceptions import Forbidden
from werkzeug.routing import Map

from pinner.api.access.credentials import Identity
from pinner.model.errors import Invalid

LOG = logging.getLogger(__name__)

RELOAD_SECONDS = 1.0
"""oslo.policy would search for changed files at each check, which takes longer than the check."""
MAX_DECISIONS = 1024
PREFIX = "pinner:"
FIELD = "[oslo_policy] policy_file"
DEFAULT_FILE = "policy.yaml"
"""Beside the configuration file. It need not exist."""

_ROLES = (
    RuleDefault("admin", "role:admin", "May do everything."),
    RuleDefault("operator", "role:operator or rule:admin", "May change guests and processes, and also read."),
    RuleDefault("reader", "role:reader or rule:operator", "May read."),
    RuleDefault("hook", "role:hook or rule:admin", "May report events of guests, and read topologies."),
)


def _rule(name: str, check: str, method: str, path: str, description: str) -> DocumentedRuleDefault:
    return DocumentedRuleDefault(PREFIX + name, f"rule:{check}", description, [{"method": method, "path": path}])


_OPERATIONS = (
    _rule("health:show", "reader", "GET", "/v1/health", "Show why the server is not ready."),
    _rule("metrics:show", "reader", "GET", "/metrics", "Show the metrics of the server."),
    _rule("strategies:list", "reader", "GET", "/v1/strategies", "List the installed strategies."),
    _rule("hosts:list", "reader", "GET", "/v1/hosts", "List the hosts."),
    _rule("hosts:observe", "reader", "GET", "/v1/hosts/{host}", "Take a snapshot of a host without storing it."),
    # Nova's listener has the role hook. It asks which CPUs the destination of a migration has.
    _rule("hosts:topology", "hook or rule:reader", "GET", "/v1/hosts/{host}/topology", "Show a host's CPUs and nodes."),
    _rule("hosts:capacity", "reader", "GET", "/v1/hosts/{host}/capacity", "Show how many more guests fit a host."),
    _rule("hosts:findings", "reader", "GET", "/v1/hosts/{host}/findings", "Show what hurts a host's guests."),
    _rule("hosts:measures", "reader", "GET", "/v1/hosts/{host}/measures", "Show measured delays, CPU use and drops."),
    _rule("hosts:what_if", "reader", "POST", "/v1/hosts/{host}/what-if", "Plan a host that is not so."),
    _rule("hosts:interrupts", "reader", "GET", "/v1/hosts/{host}/interrupts", "Show the interrupts of devices."),
    _rule("hosts:processes", "reader", "GET", "/v1/hosts/{host}/processes", "List the processes of a host."),
    _rule("hosts:guests", "reader", "GET", "/v1/hosts/{host}/guests", "List the active guests of a host."),
    _rule(
        "hosts:blame",
        "operator",
        "GET",
        "/v1/hosts/{host}/guests/{guest}/blame",
        "Trace the scheduler, and show who delays a guest.",
    ),
    _rule("snapshots:create", "operator", "POST", "/v1/hosts/{host}/snapshot", "Take and store a snapshot."),
    _rule("snapshots:show", "reader", "GET", "/v1/snapshots/{snapshot}", "Show a stored snapshot."),
    _rule("plans:create", "operator", "POST", "/v1/hosts/{host}/plans", "Make and store a plan."),
    _rule("plans:list", "reader", "GET", "/v1/plans", "List the plans."),
    _rule("plans:show", "reader", "GET", "/v1/plans/{plan}", "Show a plan."),
    _rule("plans:explain", "reader", "GET", "/v1/plans/{plan}/explanation", "Explain a guest's place in a plan."),
    _rule("plans:apply", "operator", "POST", "/v1/plans/{plan}/apply", "Apply a plan: change affinities."),
    _rule("runs:list", "reader", "GET", "/v1/runs", "List the runs."),
    _rule("runs:show", "reader", "GET", "/v1/runs/{run}", "Show a run and its changes."),
    _rule("runs:outcome", "reader", "GET", "/v1/runs/{run}/outcome", "Show the measures before and after a run."),
    _rule("runs:events", "reader", "GET", "/v1/runs/{run}/events", "Follow a run."),
    _rule("runs:rollback", "operator", "POST", "/v1/runs/{run}/rollback", "Roll a run back."),
    _rule("hosts:rollback", "operator", "POST", "/v1/hosts/{host}/rollback", "Roll all runs of a host back."),
    _rule("probes:create", "operator", "POST", "/v1/plans/{plan}/probe", "Test plans. Keeping one needs plans:apply."),
    _rule("probes:show", "reader", "GET", "/v1/probes/{probe}", "Show a probe and its verdict."),
    _rule("probes:cancel", "operator", "DELETE", "/v1/probes/{probe}", "End a probe before its time."),
    _rule("policies:show", "reader", "GET", "/v1/hosts/{host}/policy", "Show a host's policy."),
    _rule("policies:set", "admin", "PUT", "/v1/hosts/{host}/policy", "Set a host's policy."),
    _rule("policies:delete", "admin", "DELETE", "/v1/hosts/{host}/policy", "Delete a host's policy."),
    _rule("drift:show", "reader", "GET", "/v1/hosts/{host}/drift", "Compare a host with its recorded placement."),
    _rule(
        "guests:exclude",
        "operator",
        "PUT",
        "/v1/hosts/{host}/guests/{guest}/excluded",
        "Exclude a guest from placement, or include it again.",
    ),
    _rule("events:started", "hook", "POST", "/v1/events/guest-started", "Report that a guest has started."),
    _rule("events:leaving", "hook", "POST", "/v1/events/guest-leaving", "Report that a guest is about to migrate."),
    _rule("events:gone", "hook", "POST", "/v1/events/guest-gone", "Report that a guest has left the host."),
    _rule("audit:list", "reader", "GET", "/v1/audit", "List the records of the audit trail."),
    _rule("audit:verify", "reader", "GET", "/v1/audit/verify", "Verify the audit trail."),
    _rule("audit:verify_with_anchor", "reader", "POST", "/v1/audit/verify", "Verify the audit trail with an anchor."),
    _rule("audit:anchor", "reader", "GET", "/v1/audit/anchor", "Make an anchor of the audit trail."),
    _rule("audit:export", "admin", "GET", "/v1/audit/export", "Export the audit trail."),
)


def list_rules() -> list[RuleDefault]:
    """The entry point of oslopolicy-sample-generator."""
    return [*_ROLES, *_OPERATIONS]


def rules_of(routes: Map, public: frozenset[str]) -> Mapping[str, str]:
    """Raises LookupError for an endpoint without exactly one rule."""
    rules = {
        (operation["method"], operation["path"]): rule.name for rule in _OPERATIONS for operation in rule.operations
    }
    rule_of = {}
    for route in routes.iter_rules():
        if route.endpoint in public:
            continue
        path = route.rule.replace("<", "{").replace(">", "}")
        named = {rules.get((method, path)) for method in (route.methods or set()) - {"HEAD", "OPTIONS"}}
        if len(named) != 1 or None in named or route.endpoint in rule_of:
            raise LookupError(
                f"{sorted(route.methods or ())} {path} needs exactly one rule in pinner/api/access/policies.py"
            )
        rule_of[route.endpoint] = str(named.pop())
    return rule_of


class Authorizer:
    """``clock`` gives seconds that only increase."""

    def __init__(self, enforcer: Enforcer, clock: Callable[[], float]) -> None:
        """Raises Invalid for a policy file that is wrong."""
        self.enforcer = enforcer
        self._clock = clock
        self._guard = threading.Lock()
        self._decisions: dict[tuple[str, Identity, str], bool] = {}
        enforcer.register_defaults(list_rules())
        try:
            enforcer.load_rules()
            _check_files(enforcer)
        except Invalid:
            raise
        except Exception as error:  # oslo.policy passes on whatever YAML and the file system raise
            raise Invalid(FIELD, enforcer.policy_file, f"a file of rules in YAML ({error})") from None
        # authorize() would search for the files again.
        enforcer.use_conf = False
        self._read_at = clock()

    def require(self, rule: str, identity: Identity, host: str) -> None:
        """``host`` is empty where the operation names none. Raises Forbidden."""
        if self._clock() - self._read_at >= RELOAD_SECONDS:
            self._reload()
        allowed = self._decisions.get((rule, identity, host))
        if allowed is None:
            allowed = self._decide(rule, identity, host)
        if not allowed:
            raise Forbidden(f"role {identity.role} of {identity.actor} is not allowed by the rule {rule}")

    def _decide(self, rule: str, identity: Identity, host: str) -> bool:
        credentials = {"roles": [identity.role], "actor": identity.actor, "host": identity.host}
        # While the files are read, the enforcer has only a part of its rules.
        with self._guard:
            allowed = bool(self.enforcer.authorize(rule, {"host": host}, credentials))
            if len(self._decisions) < MAX_DECISIONS:
                self._decisions[rule, identity, host] = allowed
        return allowed

    def _reload(self) -> None:
        """Where changed files are wrong, the rules before stay in force."""
        with self._guard:
            if self._clock() - self._read_at < RELOAD_SECONDS:
                return
            self._read_at = self._clock()
            try:
                self.enforcer.use_conf = True
                self.enforcer.load_rules()
            except Exception:
                LOG.exception("%s is wrong; the rules that were read before stay in force", FIELD)
            finally:
                self.enforcer.use_conf = False
            self._decisions = {}


def _check_files(enforcer: Enforcer) -> None:
    """Raises Invalid for a file that does not limit what its author believes."""
    if enforcer.policy_file != DEFAULT_FILE and enforcer.policy_path is None:
        raise Invalid(FIELD, enforcer.policy_file, "a file that exists")
    for name in enforcer.file_rules:
        if name.startswith(PREFIX) and name not in enforcer.registered_rules:
            raise Invalid(FIELD, enforcer.policy_file, f"rules of etc/pinner/policy.yaml.sample; there is no {name!r}")
    if not enforcer.check_rules():
        raise Invalid(FIELD, enforcer.policy_file, "rules that refer to defined rules, without a cycle (see the log)")
