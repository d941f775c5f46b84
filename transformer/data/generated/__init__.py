"""Data that the package makes itself: the English-German grammar and the pictures of coloured shapes."""
