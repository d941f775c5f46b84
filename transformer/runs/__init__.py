"""What a work directory holds, and the process that works in it."""
