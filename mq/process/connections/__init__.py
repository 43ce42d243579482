"""What a client without any rights can make a broker hold, which is a constant: connections, headers, half a request.

Begin with `connections`, which decides as plain data who may connect, who gives way, and who is late. `protocol` is
uvicorn's, with these decisions carried out. `limits` derives them from the settings and from the limit of open files,
`pace` tells who makes no progress, `refusals` has what the refused are told, `watch` looks after all of it each second.
`socket_reader` stands before it: it reads large bodies past the parser to where they are used. `half_heads` and
`unwanted` have connections read on in turn whose bytes would otherwise keep the broker from everybody else's.
`fast_protocol` serves publishes of one message itself. `web_socket` is what a connection may become; `small_frames`
finds most of its messages. With TLS a connection begins in `tls_handshake`, and goes on above `tls_transport`.
"""
