"""A broker as a process: its socket, the HTTP server, signals, and the drain at the end.

Begin with `server`. It opens the store, starts the broker and serves until SIGTERM or SIGINT; then it drains, while
`drain_watch` logs the segments and requests it waits for. The other modules each set up one thing of the process: the
listening socket, the signals, the garbage collector, Arrow's memory pool, and the metrics of the store.
"""
