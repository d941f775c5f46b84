"""From sentence pairs to batches: sources -> tokenizer -> corpus -> batches."""
