"""`mq pipeline compact`: write the small files of a topic again as large ones.

`compaction_plan.py` decides which files to roll up, from names and sizes alone. `compact.py` writes the roll-ups, a
Spark task each, and says why that is safe at any time. `compact_options.py` has the options,
`choices.py` their defaults and bounds, and `compact_command.py` the output.
"""
