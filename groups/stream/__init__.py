"""Stream groups, pure: members divide the segments of a topic, and commit positions (docs/design.md §12).

`progress.py` is what records add up to, `members.py` decides by it, `frontier.py` follows the lineage of segments, and
`assignment.py` says who is to have what. Begin with `members.py`.
"""
