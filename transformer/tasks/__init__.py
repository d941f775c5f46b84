"""What a model is trained to do: each task in its own file or folder."""
