"""Language modelling: predict each piece of a text from those before it."""
