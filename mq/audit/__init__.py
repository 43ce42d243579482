"""The audit trail: who has changed what, and what was refused, as messages of the topic `__audit`."""
