"""What Python and the command line both call: train, evaluate, compare, load. Nothing here prints."""
