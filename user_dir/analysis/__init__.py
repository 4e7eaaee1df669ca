"""What the heads do: attention captured from a model, and statistics over it."""
