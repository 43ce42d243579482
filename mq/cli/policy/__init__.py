"""`mq policy`: show and change what all brokers of a cluster go by. `policy_file` is its form as a file."""
