"""A checker for queue groups: a load, what it saw, and whether that may be.

Begin with `queue_load`: publishers and workers that write down everything they send and are told (`queue_history`).
`queue_verdict` judges it. `storm` runs both for as long as you like, with faults at random.
"""
