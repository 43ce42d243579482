"""The format of segment files: columns, Parquet, footers, digests.

Begin with `schema` (what messages are, and their columns), then `segment_file` (encoding, footers, decoding) and
`digests` (what is checked when a file is read). `checked_file` reads a file by ranges. `requests` is the part of a
footer that names producers. `ranged_file` and `sparse_file` let Arrow read a file of which only a part was fetched.
`row_ends` computes how much memory rows take. `plain` encodes most files of owners.
"""
