"""Turns texts and images into batches: readers -> codec -> dataset -> rows -> batches -> prefetch."""
