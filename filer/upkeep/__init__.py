"""Background work on stored segments: roll-ups, index snapshots, retention and deletion.

Begin with `segment_upkeep`, which does the steps for one segment in the order that keeps every message readable.
`rollup` writes small files again as one and reads it back before it replaces anything. `retention` decides what may go,
`deletion` and `upload_sweep` delete it a grace period later. `pacing` leaves the processors to publishers.
"""
