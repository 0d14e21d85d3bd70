"""What the Java proxy 4.0.8 says and does, recorded; what ours does is compared with it.

`scripts` holds what a client sends and how the broker behind answers, `player` plays one of them before any proxy,
`record` writes the Java proxy's transcripts into recorded/ (by hand: it needs the peer), `differences` lists each place
where ours is otherwise, with the reason. tests/conformance/test_transcripts.py compares, without the peer.
"""
