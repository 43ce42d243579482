"""What a broker reports to Prometheus.

`metrics` has all of it and writes it out. `requests`, `cluster` and `upkeep` are groups of metrics about the broker as
a whole. `topics` has the series of single topics, whose number is limited.
"""
