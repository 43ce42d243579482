"""The owner of an open segment.

Begin with `segment_writer`. A request enters `publish_queue`, and `flush_timer` says when the next file is due. The
file is put while `ownership_proof` makes sure that the segment is still ours. `replicated_acks` answers earlier where
followers hold the messages.
"""
