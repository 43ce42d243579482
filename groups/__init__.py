"""Consumer groups: what their messages in `__groups` say and add up to, and what their coordinator decides.

All of it is pure: plain data and times come in, decisions and records go out. `records.py` is what is stored, `queue/`
are groups that share messages by claims, `stream/` are groups whose members divide segments. Begin with
docs/design.md §12, and the models in `model/claims.py` and `model/memberships.py`.
"""
