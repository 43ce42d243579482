"""Access control: credentials become principals, principals have grants, and each request needs some.

Begin with `grants`, which decides, and `needs`, the form of what a request needs. `credentials` makes a principal of
the credential in a request, by `key_ring` (signed tokens) and `static_tokens`.
"""
