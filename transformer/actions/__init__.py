"""The actions that Python and the command line both call: train, evaluate, compare, load. None prints."""
