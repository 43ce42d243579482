"""How brokers prove to each other who speaks: keys that all of them have, by which each request and answer is signed.

Begin with `signatures`, which says what is signed, as pure functions. `peer_keys` has the keys and their file,
`kept_keys` those in force, which change with the file. `outgoing` signs requests and checks answers; `incoming` checks
requests and signs answers. `seen_requests` remembers what was asked already, in bounded memory.
"""
