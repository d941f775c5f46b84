"""Speed: updates, searches and data preparation, ours and other libraries', in turns."""
