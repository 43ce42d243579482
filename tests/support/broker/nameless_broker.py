"""A broker whose calls do not say who calls, as those of older brokers: nobody hears that it lives."""

from unittest import mock

from mq.cli.main import main

if __name__ == "__main__":
    with mock.patch("mq.peers.peers.BROKER_HEADER", "Braid-Nobody"):
        main()
