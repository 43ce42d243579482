"""Who should act: membership and the transitions that change a topic's shape."""
