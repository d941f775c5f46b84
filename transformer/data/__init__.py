"""From texts and images to batches: readers -> codec -> dataset -> rows -> batches -> prefetch."""
