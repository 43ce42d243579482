"""The proof of a broker's identity to others: keys that all brokers have, which sign each request and answer.

Begin with `signatures`, which has what is signed, as pure functions. `peer_keys` has the keys and their file,
`kept_keys` those in force, which change with the file. `outgoing` signs requests and checks answers; `incoming` checks
requests and signs answers. `seen_requests` remembers served requests, in bounded memory.
"""
