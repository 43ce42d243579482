"""Files of plain messages in the very bytes that Arrow would write, in half of its time.

Begin with `plain_file`. `pages` makes the pages of a column and its entry in the footer, `delta_packed` the numbers of
offsets and timestamps, `thrift` the encoding of headers and footers. `null_columns` finds, without decoding them, the
columns of a file that have no value. Why this is not left to Arrow:
docs/decisions/0028-plain-files-without-arrows-writer.md.
"""
