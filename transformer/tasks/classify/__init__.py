"""Text classification: a class or a number for a text or a pair of texts (Wang et al. 2018)."""
