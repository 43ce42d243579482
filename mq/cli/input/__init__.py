"""The input of users: times, settings with nested ones, yes or no."""
