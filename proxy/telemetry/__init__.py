"""What the proxy tells of itself in numbers: one table of instruments, and what is made from it."""
