"""The admin API: what an operator asks of a running proxy and has it do, by the control socket or a port with a token.

`routes` is the one table of what there is; `views` and `changes` answer; `door`, `access` and `exchange` guard and
serve; `ask`, `command` and `tables` are the other end, `pulsar-proxy admin`.
"""
