"""The command line `mq`."""
