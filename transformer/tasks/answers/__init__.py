"""Question answering: finds the answer to a question in a paragraph (Rajpurkar et al. 2016)."""
