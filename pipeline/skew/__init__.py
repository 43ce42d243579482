"""`mq pipeline skew`: show how unevenly a topic's messages are spread over the slots, and where to cut them.

`slot_counts.py` counts messages and bytes per slot from files, `skew.py` runs that on Spark and makes the report, and
`skew_command.py` has the options and the output.
"""
