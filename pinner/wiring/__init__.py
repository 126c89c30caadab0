"""The composition root: creates pinner's objects from the configuration. No other room reads the configuration."""

from pinner.wiring.agent import agent_client, local_agent
from pinner.wiring.captured import captured_agent, open_captured, save_machine
from pinner.wiring.service import purge, service_parts, start_controller, start_retention
from pinner.wiring.settings import (
    SOCKETS_OF_ROOT,
    STATE_OF_ROOT,
    agent_socket,
    api_socket,
    configuration,
    database_url,
    has_own_state,
    host_name,
    listening,
    nova_reader,
    nova_sets,
    now,
    state_dir,
    use_state_of_root,
)

__all__ = [
    "SOCKETS_OF_ROOT",
    "STATE_OF_ROOT",
    "agent_client",
    "agent_socket",
    "api_socket",
    "captured_agent",
    "configuration",
    "database_url",
    "has_own_state",
    "host_name",
    "listening",
    "local_agent",
    "nova_reader",
    "nova_sets",
    "now",
    "open_captured",
    "purge",
    "save_machine",
    "service_parts",
    "start_controller",
    "start_retention",
    "state_dir",
    "use_state_of_root",
]
