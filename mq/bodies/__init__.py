"""Request bodies: from the bytes of a publish to columns."""
