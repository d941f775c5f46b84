"""Compiled programs: FLOPs, memory and cycles by the compiler's own text."""
