"""What every other folder of the broker may use: settings, errors, and checks of exposure.

This is the bottom layer: it imports nothing else of `mq`. Begin with `settings` (every setting, its default and bounds)
and `errors` (which requests a broker refuses, and why).
"""
