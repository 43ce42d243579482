"""Which user of this machine is at the other end of a connection: on Linux the kernel says so.

Begin with `sides`, which decides what two sockets of a connection prove. `socket_diag` asks the kernel for them, and
`proc_net` reads lists if it cannot be asked. `kernel_users` chooses between the two. `mq/security/local_callers.py`
decides which users are served.
"""
