"""The audit trail: the changes that principals made, and the requests refused, as messages of the topic `__audit`."""
