"""What both Python and the command line call: train, evaluate, compare, load. Nothing here prints."""
