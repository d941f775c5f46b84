"""Figures: what a model attends to, and curves."""
