"""Reading: topics page by page, single segments by offset, files from the store, and payloads.

Begin with `reader.py`, which reads pages from a broker and, far from the end, from files (`stored_pages.py`).
`cursors.py` has the iterators for users; `payload.py` reads values that were sent by reference. It builds on
`transport` and `cluster`.
"""
