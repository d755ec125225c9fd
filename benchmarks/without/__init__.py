"""The default model with each of its parts taken out in turn."""
