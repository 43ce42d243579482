"""What every other folder of the broker may use: settings, errors, and who may do what.

This is the bottom layer: it imports nothing else of `mq`. Begin with `settings` (every setting, its default and bounds)
and `errors` (what a broker refuses, and why).
"""
