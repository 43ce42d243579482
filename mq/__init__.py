"""The broker: HTTP interface, front store, subscriptions and the command line."""
