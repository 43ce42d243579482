"""Segment files that a client writes whole and one transition adopts (docs/design.md §10a).

`load_files.py` writes such files. A broker checks them before it adopts them: begin with `load_check.py`, which has the
rules. `row_group_lots.py` decodes what the rules need, a bounded amount at a time; `page_headers.py` reads what a page
will take in memory. `known_pages.py`, `null_columns.py` and `stepped_columns.py` recognise columns by their bytes and
so only save processor time; `column_statistics.py` checks the file's statistics, by which readers skip rows.
"""
