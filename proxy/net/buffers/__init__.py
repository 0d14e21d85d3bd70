"""Large kernel buffers of connections, bounded in sum.

Start with `kernel_memory.py`, the book of the send buffers of `proxy/net/send_buffers.py`. `tcp_buffers.py` reads the
kernel's own bounds.
"""
