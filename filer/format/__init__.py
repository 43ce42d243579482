"""The format of segment files: columns, Parquet, footers.

Begin with `schema` (the columns), then `segment_file` (encoding, footers, decoding). `requests` is the part of a footer
that names producers. `ranged_file` and `sparse_file` let Arrow read a file of which only a part was fetched.
"""
