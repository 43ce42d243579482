"""Consumer groups: what their messages in `__groups` add up to, and what their coordinator decides.

All of it is pure: plain data and times come in, decisions and records go out. `records.py` has what is stored. In
`queue/` groups share messages by claims, in `stream/` the members of a group divide segments. Begin with docs/design.md
§12, and the models in `model/claims.py` and `model/memberships.py`.
"""
