"""What every other folder of the broker may use: settings, errors, metrics, and the memory for recent messages.

This is the bottom layer: it imports nothing else of `mq`. Begin with `settings` (every setting, its default and bounds)
and `errors` (what a broker refuses, and why). `front_store` bounds the memory of messages that are not stored yet.
"""
