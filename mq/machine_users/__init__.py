"""Which user of this machine is at the other end of a connection: on Linux the kernel tells.

Begin with `sides`, which decides what two sockets of a connection prove. `socket_diag` asks the kernel for them, and
`proc_net` where that cannot be asked. `kernel_users` chooses between the two. `mq/security/local_callers.py` says who
is served.
"""
