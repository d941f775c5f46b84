"""Evidence: how sure the paper's own numbers are, and how well small trainings predict them."""
