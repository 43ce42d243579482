"""`mq context`: brokers by a name, with what it takes to talk to them.

`commands` are the commands; `mq/cli/context_file.py` is the file, and `mq/cli/context_in_force.py` has it count.
"""
