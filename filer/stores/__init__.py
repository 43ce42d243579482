"""Object stores: where everything durable is kept.

Begin with `store.py`, the protocol that every store follows. `open_store.py` opens a store by its URL and says how to
add another one. `local/`, `s3/` and `memory_store.py` are the stores; `decorators/` wrap any of them to repeat calls,
count them or let them fail. `fence_check.py` makes sure at start that two writers cannot both win.
"""
