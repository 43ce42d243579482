"""Decodes the bodies of publish requests from bytes to columns.

`intake` reads a body within the bounds of the front store. `json_body` and `arrow_body` decode it to `Rows`, which is
defined in `rows`. The decoder of each media type is in `mq/forms/formats.py`.
"""
