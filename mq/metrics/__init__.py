"""What a broker tells Prometheus.

`metrics` has it all and writes it down. `requests`, `cluster` and `upkeep` are groups of metrics about the broker as a
whole. `topics` has the series of single topics, of which there are only so many.
"""
