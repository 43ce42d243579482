"""Checks what is stored against its own digests: one file, and the chain of a segment's files.

Begin with `file_check` (pure), then `chain_check` (pure). `stored_files` reads from a store what these two need, a row
group at a time; `stored_segment` and `stored_topic` go through all that counts. `mq verify` and the scrub report the
results: `scrub_schedule` (pure) says when a segment is read, `scrub_record` keeps when it was.
"""
