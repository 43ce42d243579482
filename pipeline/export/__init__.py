"""`mq pipeline export`: add the new messages of a topic to a table, run by run.

Begin with `export.py`, which has the steps of a run and why it can be killed anywhere. `export_plan.py` decides what is
still to be exported, `export_state.py` is the record of that, and `export_files.py` writes files, with the columns that
`table_columns.py` makes of messages, by the types that `schema_file.py` reads. `parquet_table.py` and
`iceberg_table.py` make a run visible in a table of their format. `export_options.py` has the options, `choices.py`
their values, and `export_command.py` the output.
"""
