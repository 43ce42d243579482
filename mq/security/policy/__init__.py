"""The policy of a cluster: one object on the store that all its brokers read, changed by compare-and-swap.

`document` is its content, as plain data; `subjects` are the patterns of principals in it, `limits` the quotas.
`policy_object` is the object on the store, and `in_force` the policy by which one broker decides.
"""
