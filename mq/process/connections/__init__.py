"""The bounds of what a client without any rights can make a broker hold: connections, headers, half a request.

Begin with `connections`, which decides as plain data which connections are admitted, give way, or are late. `protocol`
is uvicorn's, and carries these decisions out. `limits` derives them from the settings and from the limit of open files,
`pace` finds transfers without progress, `refusals` has the answers to refused clients, `watch` looks after all of it
each second. `socket_reader` stands before it: it reads large bodies past the parser to their place of use. `half_heads`
and `unwanted` read connections in turn whose bytes would otherwise keep the broker from all others. `fast_protocol`
serves publishes of one message itself. A connection may become a `web_socket`; `small_frames` finds most of its
messages. With TLS a connection begins in `tls_handshake`, and goes on above `tls_transport`.
"""
