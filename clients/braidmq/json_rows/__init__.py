"""A row as JSON, and back: the one definition, which docs/json-rows.md tells, of every path that writes rows.

`encoding.py` writes tables, `decoding.py` reads them back by a schema, `plain_values.py` writes Python's own values.
`plain.py` sees through Arrow's layouts of the same values; `refusal.py` says which value cannot be written or read, by
column and row.
"""
