"""`mq context`: brokers by a name, with the files that connections to them need.

`commands` are the commands; `mq/cli/context_file.py` is the file, and `mq/cli/context_in_force.py` puts it in force.
"""
