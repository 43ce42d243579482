"""Stream groups, pure: members divide the segments of a topic, and commit positions (docs/design.md §12).

`progress.py` is the sum of the records, `members.py` decides by it, `frontier.py` follows the lineage of segments, and
`assignment.py` chooses which member is to have which segment. Begin with `members.py`.
"""
