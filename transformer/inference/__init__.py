"""Inference with a trained model: search, likelihood of given texts, attention weights."""
