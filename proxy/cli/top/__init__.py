"""`pulsar-proxy top`: a live view of limiters, queues, top namespaces and refusals of a running proxy.

Start with `command.py`. `screen.py` formats the document as lines of text, `live_view.py` takes keys. The document and
its rows are made in the proxy: `proxy/app/top_document.py`; the page for people shows it too:
`proxy/web/ui/document.py`.
"""
