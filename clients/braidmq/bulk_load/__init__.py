"""Bulk loads: a table or Parquet files become whole segments, without passing through a broker.

Begin with `loader.py`: reserve segments, write their files, commit. `load_source.py` cuts the rows into files, and
`file_uploads.py` puts those on the store. It builds on `publish` (tables), `cluster` and `transport`.
"""
