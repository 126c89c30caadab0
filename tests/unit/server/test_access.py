"""The access control of a server, from its configuration."""

import pytest

from pinner import conf
from pinner.model.errors import Invalid
from pinner.server.access import access_control, get_enforcer


@pytest.fixture
def control_of(tmp_path, store):
    """The access control of a configuration file with this text."""

    def make(text):
        file = tmp_path / "pinner.conf"
        file.write_text(text)
        return access_control(conf.load([file]), store)

    return make


def test_roles_of_certificates_and_proxies_are_read(control_of):
    text = "[api]\ntls_client_roles = ceilometer:reader, deploy:admin\ntrusted_proxies = 10.0.0.7, 2001:db8::/64\n"
    credentials = control_of(text).credentials
    assert credentials._client_roles == {"ceilometer": "reader", "deploy": "admin"}
    assert [str(network) for network in credentials._trusted] == ["10.0.0.7/32", "2001:db8::/64"]


def test_nobody_is_trusted_by_default(control_of):
    credentials = control_of("").credentials
    assert (credentials._client_roles, credentials._trusted) == ({}, ())


@pytest.mark.parametrize(
    ("option", "value"),
    [
        ("tls_client_roles = deploy:root", "root"),
        ("tls_client_roles = deploy:", ""),
        ("tls_client_roles = policy:reader", "policy"),
        ("tls_client_roles = a b:reader", "a b"),
        ("trusted_proxies = proxy.example", "proxy.example"),
        ("trusted_proxies = 0.0.0.0/0", "0.0.0.0/0"),
    ],
)
def test_a_wrong_option_names_itself_and_its_value(control_of, option, value):
    with pytest.raises(Invalid) as refused:
        control_of(f"[api]\n{option}\n")
    assert refused.value.details["field"] == f"[api] {option.partition(' ')[0]}"
    assert refused.value.details["value"] == value


def test_oslo_policys_commands_get_the_rules():
    assert "pinner:plans:apply" in get_enforcer().registered_rules
