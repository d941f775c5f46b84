"""The generated English-German corpus; sentences.py makes it, reader.py judges German sentences."""
