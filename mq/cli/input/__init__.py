"""What people say to commands: times, settings with nested ones, yes or no."""
