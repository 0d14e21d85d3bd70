"""What is measured of an upload, and what its client is told when it is ended."""

from proxy.net.write_watch import WriteLimits
from proxy.web.forward.uploads import Upload


def limits() -> WriteLimits:
    return WriteLimits(20.0, 100)


def test_what_a_broker_takes_of_the_time_is_not_the_clients() -> None:
    upload = Upload(limits)
    upload.wait(0.0, lambda: None)
    upload.received(1.0, 10)
    # The broker takes a minute for these ten bytes.
    assert upload.sample(61.0) is None
    upload.wait(61.0, lambda: None)
    found = upload.sample(62.0)
    assert found is not None
    assert (found.of, found.seconds, found.moved_bytes) == (upload, 2.0, 10)


def test_an_upload_that_is_ended_says_which_key_it_was() -> None:
    upload, stopped = Upload(limits), []
    assert "topicListWriteStallTimeoutMillis" in upload.refusal.reason
    upload.stop()
    assert not upload.too_slow
    upload.wait(0.0, lambda: stopped.append(True))
    upload.stop()
    assert stopped == [True]
    assert (upload.refusal.status, "topicListWriteMinBytesPerSecond" in upload.refusal.reason) == (408, True)


def test_without_a_stall_time_out_silence_has_no_end() -> None:
    assert Upload(lambda: WriteLimits(0.0, 0)).stall_seconds is None
    assert Upload(limits).stall_seconds == 20.0
