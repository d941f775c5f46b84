"""The English-German corpus that the package generates: see sentences.py."""
