"""Compiled programs: their FLOPs, bytes, memory, loop steps and seconds."""
