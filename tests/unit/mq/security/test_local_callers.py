"""Who is served for being a user of this machine."""

import os

import pytest

from mq.base.errors import Forbidden
from mq.base.settings import BrokerSettings
from mq.security.caller import Caller
from mq.security.local_callers import LocalCallers, name_of_user

ME, OTHER = os.geteuid(), os.geteuid() + 1


@pytest.mark.parametrize("address", ["127.0.0.1", "127.8.8.8", "::1", "::ffff:127.0.0.1"])
@pytest.mark.parametrize(
    ("tells_users", "user", "is_served"),
    [
        (True, ME, True),
        (True, 0, True),
        (True, OTHER, False),
        (True, None, False),
        # A system other than Linux: nobody is asked.
        (False, None, True),
    ],
)
def test_whom_the_default_serves(address: str, tells_users: bool, user: int | None, is_served: bool) -> None:
    local = LocalCallers(BrokerSettings(), tells_users=tells_users)
    caller = Caller(address, user)
    assert local.serves(caller) is is_served
    if is_served:
        name = name_of_user(caller) if tells_users else "anybody"
        assert local.principal(caller, "read").name == name
    else:
        with pytest.raises(Forbidden, match="--authorizer loopback"):
            local.principal(caller, "read")


@pytest.mark.parametrize("authorizer", ["user", "loopback"])
def test_an_address_beyond_this_machine_is_refused_whoever_it_is(authorizer: str) -> None:
    local = LocalCallers(BrokerSettings.model_validate({"authorizer": authorizer}), tells_users=True)
    # One that is gone before the broker looks has no address.
    for address in ("", "10.0.0.1", "2001:db8::1", "::ffff:10.0.0.1"):
        assert not local.serves(Caller(address, ME))
        with pytest.raises(Forbidden, match="from this address"):
            local.principal(Caller(address, ME), "read")


def test_the_other_setting_serves_every_user() -> None:
    assert LocalCallers(BrokerSettings(authorizer="loopback"), tells_users=True).serves(Caller("::1", OTHER))


def test_who_was_refused_has_a_name_in_the_audit_trail() -> None:
    assert name_of_user(Caller("127.0.0.1", 1001)) == "uid:1001"
    assert name_of_user(Caller("127.0.0.1")) == ""
