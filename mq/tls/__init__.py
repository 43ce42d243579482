"""TLS: contexts from the files of certificates and keys, which are read again when they change.

Begin with `contexts`, which turns files into TLS contexts and says in words what is wrong with one. `reload` looks at
the files; `newest_context` hands connections that begin to what was read last. `peer_certificate` is who a client is by
its certificate.
"""
