"""Who may do what: credentials become principals, principals have grants, and each request needs some.

Begin with `grants`, which decides, and `needs`, which knows what each request needs. `credentials` makes a principal of
what a request carries, by `key_ring` (signed tokens) and `static_tokens`.
"""
