"""Renders tables as text, Markdown, LaTeX, CSV, JSON and HTML."""
