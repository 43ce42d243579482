"""`mq policy`: show and change the policy of all brokers of a cluster. `policy_file` is its form as a file."""
