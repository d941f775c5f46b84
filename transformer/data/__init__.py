"""From text to batches: readers -> tokenizer -> corpus -> rows -> batches -> prefetch."""
