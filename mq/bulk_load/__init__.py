"""Bulk loads: files that clients write straight to the store, and that one transition adopts.

Begin with `bulk_loads`: reserve segments, return where files go, commit. A commit checks the folders of the reserved
segments (`load_folders`), makes a process read the files, with limited memory and time (`load_checker`,
`load_check_process`), seals the segments, and asks the `TransitionExecutor` to adopt them.
"""
