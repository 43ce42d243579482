"""A directory as a store, for one machine or for many that mount it.

Begin with `local_store.py`. `durable_file.py` writes files so that they survive a power failure, `folder_walk.py` lists
a directory tree in the order of keys, and `os_errors.py` maps errors of the operating system to those of a store.
`access.py` keeps a store to its owner. `tidy_folder.py` leaves no locks behind, for tables. `open_local.py` opens the
store by its URL or path.
"""
