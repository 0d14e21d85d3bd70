"""Large kernel buffers of connections, bounded in sum.

Start with `kernel_memory.py`, the book. `receive_buffers.py` has the receive buffers of request connections, which are
in such a book, as are the send buffers of `proxy/net/send_buffers.py`; `tcp_buffers.py` reads the kernel's own bounds.
"""
