"""Large kernel buffers, bounded in sum: the book (`kernel_memory.py`), and the receive buffers that are in one."""
