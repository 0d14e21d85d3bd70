"""Which uploads have to go for those who wait for a connection."""

from proxy.net.write_watch import WriteLimits
from proxy.web.forward.uploads import Upload, Uploads

BROKER, OTHER = ("b", 80), ("c", 80)


def dripping(uploads: Uploads, size: int, server: tuple[str, int] = BROKER, seconds: int = 12) -> Upload:
    """Give an upload that got `size` bytes in each second, and is waited for."""
    upload = Upload()
    upload.server = server
    for second in range(seconds):
        uploads.wait(upload, second, lambda: None)
        uploads.received(upload, second + 1, size)
    uploads.wait(upload, seconds, lambda: None)
    return upload


def of_100_a_second() -> Uploads:
    return Uploads(lambda: WriteLimits(20.0, 100))


def test_the_slowest_upload_to_the_wanted_server_goes_first_and_no_more_than_are_needed() -> None:
    uploads = of_100_a_second()
    slow, slowest, elsewhere = dripping(uploads, 50), dripping(uploads, 1), dripping(uploads, 0, OTHER)
    assert uploads.make_room(BROKER, 1, 12.0) == 1
    assert (slow.too_slow, slowest.too_slow, elsewhere.too_slow) == (False, True, False)
    assert "topicListWriteMinBytesPerSecond" in slowest.refusal.reason
    assert uploads.make_room(BROKER, 5, 12.0) == 1
    assert slow.too_slow


def test_an_upload_that_is_fast_enough_or_new_stays() -> None:
    uploads = of_100_a_second()
    dripping(uploads, 100)
    new = Upload()
    new.server = BROKER
    uploads.wait(new, 4.0, lambda: None)
    assert uploads.make_room(BROKER, 5, 12.0) == 0


def test_what_a_broker_takes_of_the_time_is_not_the_clients() -> None:
    uploads, upload = of_100_a_second(), Upload()
    upload.server = BROKER
    uploads.wait(upload, 0.0, lambda: None)
    uploads.received(upload, 1.0, 10)
    # The broker takes a minute for these ten bytes.
    uploads.wait(upload, 61.0, lambda: None)
    assert uploads.make_room(BROKER, 1, 62.0) == 0
    assert uploads.make_room(BROKER, 1, 71.0) == 1


def test_an_upload_that_waits_for_its_broker_is_not_ended() -> None:
    uploads = of_100_a_second()
    upload = dripping(uploads, 0)
    uploads.received(upload, 13.0, 1)
    assert (uploads.make_room(BROKER, 1, 60.0), len(uploads)) == (0, 0)


def test_without_a_least_rate_nobody_goes() -> None:
    uploads = Uploads(lambda: WriteLimits(0.0, 0))
    dripping(uploads, 0)
    assert (uploads.make_room(BROKER, 1, 60.0), uploads.stall_seconds) == (0, None)
