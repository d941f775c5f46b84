"""The networks, from masks up to whole models."""
