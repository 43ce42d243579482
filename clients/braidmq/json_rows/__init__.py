"""A row as JSON, and back: the one definition (docs/json-rows.md) for every path that writes rows.

`encoding.py` writes tables, `decoding.py` reads them back by a schema, `plain_values.py` writes Python's own values.
`plain.py` sees through Arrow's layouts of the same values; `refusal.py` names the value that cannot be written or read,
by column and row.
"""
