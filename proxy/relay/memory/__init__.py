"""The memory of relays in the kernel: `sockets.py` bounds it for one relay, `windows.py` what senders may send ahead.

The pool that relays share for bytes that their receivers do not take is the threads'.
"""
