"""Upkeep in the background: roll, retention, roll-up, snapshots, deletion of files, sweeps of uploads and bulk loads.

Begin with `maintenance`: its loop does all work of one topic after the other. Each kind of work has a module of its
own, which does one round of one topic. `filer.upkeep` decides what to do, without I/O; every step is a compare-and-swap
of topic.json, a conditional put, or a deletion of files without references. So a step may be done twice, by two
brokers, or be cut short.
"""
