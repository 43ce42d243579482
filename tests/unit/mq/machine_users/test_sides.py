"""What the kernel's answers about the two sockets of a connection prove."""

import pytest

from mq.machine_users.sides import CLOSE_WAIT, ESTABLISHED, FIN_WAIT_2, Side, user_of

CLIENT, OURS = Side(ESTABLISHED, 1001, 7), Side(ESTABLISHED, 0, 8)
SYN_SENT, TIME_WAIT, LISTEN = 2, 6, 10
# As the kernel reports a socket that was closed: its user was 1001.
ORPHAN = Side(FIN_WAIT_2, 0, 0)


def test_the_user_is_that_of_the_clients_socket() -> None:
    assert user_of(CLIENT, OURS, CLIENT) == 1001


def test_a_client_that_sends_no_more_and_reads_on_is_still_itself() -> None:
    half = CLIENT._replace(state=FIN_WAIT_2)
    assert user_of(half, OURS._replace(state=CLOSE_WAIT), half) == 1001
    assert user_of(CLIENT, OURS, half) == 1001  # it did so while we asked


@pytest.mark.parametrize(
    ("client", "ours", "again"),
    [
        pytest.param(None, OURS, None, id="the client is gone"),
        pytest.param(CLIENT, OURS, None, id="the client goes while it is asked for"),
        pytest.param(ORPHAN, OURS, ORPHAN, id="a closed socket is nobody's, though it is reported as root's"),
        pytest.param(ORPHAN._replace(state=ESTABLISHED), OURS, CLIENT, id="in whatever state"),
        pytest.param(CLIENT._replace(user=0), OURS, ORPHAN, id="closed between its inode and its user being read"),
        pytest.param(CLIENT, OURS, CLIENT._replace(user=0), id="two users"),
        pytest.param(CLIENT, OURS, CLIENT._replace(inode=9), id="two sockets"),
        pytest.param(CLIENT, None, CLIENT, id="our side is gone: somebody else may connect from there"),
        pytest.param(CLIENT, OURS._replace(state=TIME_WAIT), CLIENT, id="our side has ended"),
        pytest.param(CLIENT, OURS._replace(inode=0), CLIENT, id="our side is closed"),
        pytest.param(CLIENT._replace(state=SYN_SENT), OURS, CLIENT, id="it only tries to connect"),
        pytest.param(CLIENT, OURS, CLIENT._replace(state=LISTEN), id="somebody listens at the client's address"),
    ],
)
def test_what_proves_nothing(client: Side | None, ours: Side | None, again: Side | None) -> None:
    assert user_of(client, ours, again) is None
