"""TLS: contexts from the files of certificates and keys, which are read again when they change.

Begin with `contexts`, which turns files into TLS contexts and names the fault of a bad one. `reload` watches the files;
`newest_context` gives new connections the context that was read last. `peer_certificate` has a client's identity by its
certificate.
"""
