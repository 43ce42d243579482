"""`mq pipeline skew`: show how unevenly a topic's messages are spread over the slots, and where to cut them.

`slot_counts.py` counts messages and bytes per slot from files, `skew.py` runs that on Spark and makes the report, and
`skew_options.py` and `choices.py` have the options, `skew_command.py` the output.
"""
