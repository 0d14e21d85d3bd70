from protocol.slabs import SLAB_BYTES, SlabBody, SlabPool


def fill(body: SlabBody, data: bytes, step: int = SLAB_BYTES) -> None:
    position = 0
    while len(place := body.writable()):
        count = min(step, len(place), len(data) - position)
        place[:count] = data[position : position + count]
        position += count
        body.advance(count)
    assert position == len(data)


def pattern(size: int) -> bytes:
    return bytes(range(251)) * (size // 251) + bytes(range(size % 251))


def use_up(body: SlabBody) -> None:
    for _ in body.consume():
        pass


class TestBody:
    def test_bytes_come_out_as_they_went_in(self) -> None:
        for size in (0, 1, SLAB_BYTES - 1, SLAB_BYTES, SLAB_BYTES + 1, 3 * SLAB_BYTES + 17):
            body = SlabBody(size, SlabPool())
            fill(body, pattern(size), step=10_007)
            assert b"".join(body.slices()) == pattern(size)

    def test_no_slice_is_larger_than_a_slab(self) -> None:
        body = SlabBody(2 * SLAB_BYTES + 5, SlabPool())
        fill(body, pattern(2 * SLAB_BYTES + 5))
        assert [len(piece) for piece in body.slices()] == [SLAB_BYTES, SLAB_BYTES, 5]

    def test_memory_is_taken_as_the_bytes_arrive(self) -> None:
        body = SlabBody(100 * SLAB_BYTES, SlabPool())
        assert body.slices() == []
        body.writable()
        assert len(body.slices()) == 1


class TestPool:
    def test_a_recycled_slab_is_used_again(self) -> None:
        pool = SlabPool()
        first = SlabBody(SLAB_BYTES, pool)
        fill(first, pattern(SLAB_BYTES))
        slab = first.slices()[0].obj
        use_up(first)
        assert pool.free_bytes == SLAB_BYTES
        second = SlabBody(SLAB_BYTES, pool)
        second.writable()
        assert second.slices()[0].obj is slab
        assert pool.free_bytes == 0

    def test_a_slab_that_may_still_be_written_is_not_used_again(self) -> None:
        pool = SlabPool()
        body = SlabBody(2 * SLAB_BYTES, pool)
        fill(body, pattern(2 * SLAB_BYTES))
        pieces = body.consume()
        next(pieces)
        assert pool.free_bytes == 0
        next(pieces)
        assert pool.free_bytes == SLAB_BYTES
        del pieces
        assert pool.free_bytes == SLAB_BYTES

    def test_free_slabs_that_nobody_took_for_a_while_are_let_go(self) -> None:
        pool = SlabPool()
        body = SlabBody(SLAB_BYTES, pool)
        fill(body, pattern(SLAB_BYTES))
        use_up(body)
        pool.trim()
        assert pool.free_bytes == SLAB_BYTES
        pool.trim()
        assert pool.free_bytes == 0

    def test_a_short_last_slab_is_not_kept(self) -> None:
        pool = SlabPool()
        body = SlabBody(10, pool)
        fill(body, pattern(10))
        use_up(body)
        assert pool.free_bytes == 0

    def test_using_up_twice_gives_a_slab_once(self) -> None:
        pool = SlabPool()
        body = SlabBody(SLAB_BYTES, pool)
        fill(body, pattern(SLAB_BYTES))
        use_up(body)
        use_up(body)
        assert pool.free_bytes == SLAB_BYTES
        assert pool.take() is not pool.take()


def test_a_lowered_number_of_spare_slabs_lets_the_others_go() -> None:
    pool = SlabPool(spare=4)
    slabs = [pool.take() for _ in range(4)]
    for slab in slabs:
        pool.give(slab)
    pool.set_spare(1)
    assert pool.free_bytes == SLAB_BYTES
    pool.give(slabs[0])
    assert pool.free_bytes == SLAB_BYTES


class TestRoom:
    def pool_with(self, room_slabs: int, given: int) -> tuple[SlabPool, list[int]]:
        room = [room_slabs * SLAB_BYTES]
        pool = SlabPool(spare=2, room=lambda: room[0])
        slabs = [pool.take() for _ in range(given)]
        for slab in slabs:
            pool.give(slab)
        return pool, room

    def test_more_slabs_are_kept_while_their_memory_is_unused(self) -> None:
        pool, _ = self.pool_with(room_slabs=5, given=9)
        assert pool.free_bytes == 5 * SLAB_BYTES

    def test_the_spare_slabs_are_kept_although_all_memory_is_in_use(self) -> None:
        pool, _ = self.pool_with(room_slabs=0, given=9)
        assert pool.free_bytes == 2 * SLAB_BYTES

    def test_slabs_whose_memory_others_took_go_at_the_next_look(self) -> None:
        pool, room = self.pool_with(room_slabs=7, given=9)
        room[0] = 3 * SLAB_BYTES
        pool.take()
        pool.trim()
        assert pool.free_bytes == 3 * SLAB_BYTES
